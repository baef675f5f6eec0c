"""The hostile agents, one file for each kind of harm."""
