"""Exercises without end, and the grading of typed answers."""
