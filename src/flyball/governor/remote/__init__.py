"""Leases of holders on other machines, who ask over HTTP."""
