"""Child processes under a lease."""
