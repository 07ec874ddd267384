"""The progress of a ladder, and its live view."""
