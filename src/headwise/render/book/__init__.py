"""Pictures of a book."""
