"""Tasks whose data are downloaded, or read from a copy."""
