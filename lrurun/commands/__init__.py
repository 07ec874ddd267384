"""One file per command, named after it: options, help, what it does. What several of them share is in `_shared`.

A file is imported for every `lrurun --help`, so what a command needs is imported inside its functions.
"""
