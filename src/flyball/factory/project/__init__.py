"""flyball.toml, the registry of projects, and `flyball init`."""
