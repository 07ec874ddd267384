"""Runs that were made elsewhere: which are the seeds of which rung, how each is scored, and what is recorded."""
