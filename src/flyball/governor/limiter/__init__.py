"""The limiter inside one process."""
