"""Verbs of a run that turns tasks into merged code. One file each."""
