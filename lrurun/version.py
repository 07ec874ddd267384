"""The versions of lrurun and of its numerics, where every package can import them: `lrurun` itself names classes of all
of them."""

VERSION = "1.0.0"

NUMERICS = 4
"""The numerics version. It is raised whenever last bits of results change for unchanged fingerprints.

Attempts record it: an unfinished run of an older version starts again, and reports mark mixtures.

1: the first version.
2: dense products on two-dimensional arrays; loops over time that replace their inputs; norms of states from the
   pass that evaluates.
3: large states of gated recurrences, which are computed in pieces.
4: parameters in one vector; complex states with both parts in one array; gradients of batch norm and of dense
   weights; a loss with one-hot labels; norms of states from the scan; inputs of blocks in memory before they are read;
   less optimisation by XLA for small layers on a CPU.
"""
