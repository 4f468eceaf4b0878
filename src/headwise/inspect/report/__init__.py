"""From scored layers to a report: entries, labels, tables, files."""
