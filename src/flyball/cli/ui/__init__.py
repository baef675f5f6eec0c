"""From values to the text that people read."""
