"""Tables of runs: CSV, TSV, JSON lines, Parquet, pandas and polars, with a row for each run, step or value.

`forms` has the rules by which a table is read, `roles` the names of columns that say what they are.
"""
