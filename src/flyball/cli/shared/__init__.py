"""What several verbs use."""
