"""A node's share of a pool, and its renewal."""
