"""From a finished branch to the default branch."""
