"""Ready tasks become merged code: choose, give each a worktree and an agent, watch, gate, land."""
