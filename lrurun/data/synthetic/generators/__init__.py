"""Data that are sampled from a published distribution instead of downloaded. NumPy and Pillow only."""
