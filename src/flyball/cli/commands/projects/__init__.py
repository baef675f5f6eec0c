"""Verbs of a project: what it consists of, its tasks, its accounts and their money. One file each."""
