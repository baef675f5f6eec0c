"""Verbs of ``flyball serve``. One file each."""
