"""What a check finds: an answer against the specification, the mistake behind a wrong one, the report."""
