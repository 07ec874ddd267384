"""The figures of reports and studies."""
