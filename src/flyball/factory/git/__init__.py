"""git and worktrees."""
