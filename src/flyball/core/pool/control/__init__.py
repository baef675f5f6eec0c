"""Controllers: algorithms that estimate how much may run at once. ``port.py`` says what one is."""
