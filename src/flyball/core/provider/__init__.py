"""Reading what a provider answered."""
