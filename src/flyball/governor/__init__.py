"""The doors: ``slot()``, ``Governor``, leases. Sync and async share one flow (acquisition.py)."""
