"""One pool: what it is, what it plans, and which asks it admits."""
