"""Dividing a pool among the nodes of a fleet."""
