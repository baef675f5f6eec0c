"""What is wrong with this machine, its state or a project."""
