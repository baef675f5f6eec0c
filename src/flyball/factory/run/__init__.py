"""One run of the factory: everything that works with the run's context."""
