"""The browser view of a ledger, `lrurun ui`: it reads, and never writes.

`serve` binds an address and prints the link, `token_guard` lets in only who has its token, `source` reads the ledger
and says when it has changed, `app` has the addresses, `ladder_pages` and `run_pages` collect what a page shows,
`curves` what is drawn.
Tables, wording and numbers come from `lrurun.report`. The pages work without scripts, except for curves and updates.
"""
