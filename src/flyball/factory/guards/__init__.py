"""What keeps an agent inside its worktree: hooks and shims, rules inside git, and bubblewrap.

``guard.py`` and what it imports is copied to ``FLYBALL_HOME`` and runs there, beside agents. Those modules
import nothing but each other and the standard library.
"""
