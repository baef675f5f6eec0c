"""Whose account agents use: profiles, who is logged in, and what a child finds in its environment."""
