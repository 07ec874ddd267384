"""Data that are drawn from a published law instead of downloaded. NumPy only."""
