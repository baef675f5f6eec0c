"""Pull requests at the host of a project's origin."""
