"""What an account has spent, as far as it can be known from here, and what people set for it."""
