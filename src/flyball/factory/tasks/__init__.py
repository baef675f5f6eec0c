"""Where tasks come from: one port, one module per source."""
