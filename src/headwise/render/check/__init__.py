"""Pictures of a check."""
