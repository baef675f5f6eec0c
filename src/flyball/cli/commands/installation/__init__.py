"""Verbs that try flyball out, check it, and set it up. One file each."""
