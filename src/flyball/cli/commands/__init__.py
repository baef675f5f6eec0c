"""A folder per group of verbs, as ``flyball --help`` shows them; one file per verb, named after it."""
