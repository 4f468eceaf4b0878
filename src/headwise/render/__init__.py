"""Pictures of a report: plain dicts in, text or one HTML file out. Imports nothing of ours but the errors."""
