"""The gateway: a pass-through on the loopback that gives every model call a slot of its own."""
