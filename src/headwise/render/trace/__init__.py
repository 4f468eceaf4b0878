"""Pictures of a trace."""
