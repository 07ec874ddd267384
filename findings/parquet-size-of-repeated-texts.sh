#!/usr/bin/env bash
# One would guess: total_uncompressed_size in the metadata of a Parquet file says how much memory its values take.
# What happens: it is the size of the encoded pages. With dictionary encoding, the default, equal values count once: a hundred
#   times the same text of a megabyte is one megabyte "uncompressed" (and a few kilobytes on disk), and a hundred in memory.
# Seen in: pyarrow 21.0.0 and 26.0.1.
# Whom it hurts: who limits what a downloaded data set may take by looking at its metadata first: reviews, books and
#   documents that repeat are exactly such columns. The limit must be on the batches that are read (RecordBatch.nbytes).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyarrow==21.0.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import os

import pyarrow as pa
import pyarrow.parquet as pq

print(f"pyarrow {pa.__version__}")
pq.write_table(pa.table({"text": ["x" * 1_000_000] * 100}), "texts.parquet")
said = pq.read_metadata("texts.parquet").row_group(0).column(0).total_uncompressed_size
read = pq.read_table("texts.parquet").nbytes
print(f"on disk {os.path.getsize('texts.parquet'):,} bytes, total_uncompressed_size {said:,}, in memory {read:,}")
if not (said < 2_000_000 and read > 100_000_000):
    raise SystemExit("changed")
print("The values take a hundred times what the metadata says.")
PY
