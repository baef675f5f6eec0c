"""Who an agent is told to be: for implementing, for each stage, for the review."""
