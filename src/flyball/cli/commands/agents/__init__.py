"""Verbs that run agents and model calls under a slot. One file each."""
