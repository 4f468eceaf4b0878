"""The book: lessons, figures, exercises and questions whose numbers are computed."""
