"""Training one run, or several seeds at once."""

PROGRAMS_KEPT = 4
"""Configurations whose compiled programs a process keeps."""
