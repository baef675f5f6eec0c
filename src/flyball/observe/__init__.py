"""What flyball tells the outside world about itself: one list of metrics, and ways to export it."""
