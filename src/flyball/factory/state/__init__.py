"""What is kept on disk while a run goes on."""
