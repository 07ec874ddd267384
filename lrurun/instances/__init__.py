"""Instances of ladders: the request that makes one, its documents in the ledger, and what remains of it."""
