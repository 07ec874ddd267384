"""One file per command, named after it; tag, note and exclude are in `annotate`.

A file is imported for every `lrurun --help`, so what a command needs is imported inside its functions.
"""
