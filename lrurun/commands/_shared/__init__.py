"""What several commands share: options and their rules, the opening of the ledger, output, warnings."""
