"""What `flyball demo` runs."""
