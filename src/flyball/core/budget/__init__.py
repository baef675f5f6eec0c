"""Money and usage windows."""
