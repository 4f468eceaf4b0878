"""Pictures of a report of an inspection."""
