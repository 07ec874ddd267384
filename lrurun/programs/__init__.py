"""Runs of users' own programs: how a worker executes one, and the module by which a program reports."""
