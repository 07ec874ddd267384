"""Tasks that are distributions: a file for each family. See `lrurun.data.on_device`."""
