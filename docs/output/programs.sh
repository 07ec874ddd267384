lrurun new program mine

lrurun plan mine.toml --tune
