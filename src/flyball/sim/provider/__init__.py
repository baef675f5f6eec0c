"""A provider with hidden limits behind a real port."""
