"""The methods paragraph of a ladder instance: what a reader of a paper must know, from the ledger."""
