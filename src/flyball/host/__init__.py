"""What the operating system tells us: time, processes, locks, memory, file systems.

One module per concern, so that another system means another branch here and nowhere else.
"""
