"""Training one run, or several seeds at once."""

NUMERICS = 3
"""The numerics version. It is raised whenever last bits of results change for unchanged fingerprints.

Attempts record it: an unfinished run of an older version starts again, and reports mark mixtures.

1: the first version.
2: dense products on two-dimensional arrays; loops over time that replace their inputs; norms of states from the
   pass that evaluates.
"""

COMPILED_KEPT = 4
"""Configurations whose compiled functions a process keeps."""
