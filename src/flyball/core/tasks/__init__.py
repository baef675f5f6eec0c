"""The factory's decisions: what is ready, what runs next, and what a run does next."""
