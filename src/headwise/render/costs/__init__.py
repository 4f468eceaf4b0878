"""Pictures of a cost."""
