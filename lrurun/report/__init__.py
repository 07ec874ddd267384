"""Reports, figures and the display of progress: what the ledger has, as people see it. No jax here."""
