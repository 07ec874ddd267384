"""How runs become verdicts: statistics, the rule, the claims of papers, and the sequential design of `--decide`."""
