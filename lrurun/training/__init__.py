"""Training one run, or several seeds at once."""

COMPILED_KEPT = 2
"""Configurations whose compiled functions a process keeps."""
