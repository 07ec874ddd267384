"""Data sets with a question."""
