"""One file per verb, named after it."""
