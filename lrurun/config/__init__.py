"""Configuration of runs: documents, schema, plan. No jax here."""
