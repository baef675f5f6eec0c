"""Verbs that show pools and set their limits. One file each."""
