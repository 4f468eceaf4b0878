"""Models from folders, files and packages, and texts as what they take."""
