"""A record to publish beside a paper: a ledger with its documents, files, reports and checksums."""
