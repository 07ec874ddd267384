"""Networks: recurrences, scans, dense products."""
