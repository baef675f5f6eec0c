"""Governed clients and servers: httpx transports, middleware that sheds, retries with a budget."""
