"""What an account has spent, as far as it can be known from here, and when to stop."""
