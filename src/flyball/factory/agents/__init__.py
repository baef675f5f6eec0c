"""One agent process: what it is told, how it is started and watched."""
