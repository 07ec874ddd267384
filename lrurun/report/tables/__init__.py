"""The tables of reports: values of the ledger as rows, and what is shown of them, whatever the format."""
