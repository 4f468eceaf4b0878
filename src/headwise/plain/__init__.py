"""What text and data are made of: numbers, words and values as people read them; stored results."""
