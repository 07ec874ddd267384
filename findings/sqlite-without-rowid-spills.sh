#!/usr/bin/env bash
# One would guess: a table with a composite key takes less space WITHOUT ROWID, since the key is then stored once instead of
#   in the table and in its index; for rows of 1.3 kB the difference should be small, in favour of WITHOUT ROWID.
# What happens: a row of a WITHOUT ROWID table lives in an index b-tree, whose pages keep at most about a quarter of a page of
#   each row (1,002 bytes of 4,096). A row of 1,300 bytes spills, and gets an overflow page of its own: 1,000 rows take 3 times
#   the space of the same rows with row ids and an index on the key. At 900 bytes the guess is right.
# Seen in: SQLite 3.50.4 (apsw 3.50.4.0).
# Whom it hurts: who keeps a compressed blob per run and name, such as 10,000 right-or-wrong answers as bits: the ledger is three
#   times as large as the blobs in it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apsw==3.50.4.0
"$folder/venv/bin/python" - "$folder" <<'PY'
import os
import sys

import apsw

print(f"SQLite {apsw.sqlite_lib_version()}")


def kilobytes(size: int, suffix: str) -> int:
    path = f"{sys.argv[1]}/{size}{suffix.replace(' ', '')}.db"
    connection = apsw.Connection(path)
    connection.execute(f"CREATE TABLE answers (run INTEGER, name TEXT, bits BLOB, PRIMARY KEY (run, name)){suffix}")
    with connection:
        connection.executemany(
            "INSERT INTO answers VALUES (?, 'test/accuracy', ?)", ((run, os.urandom(size)) for run in range(1000))
        )
    connection.close()
    return os.path.getsize(path) // 1000


sizes = {(size, suffix): kilobytes(size, suffix) for size in (900, 1300) for suffix in ("", " WITHOUT ROWID")}
for (size, suffix), found in sizes.items():
    print(f"1,000 rows of {size} bytes{suffix or ' with row ids'}: {found} kB")
spilled = sizes[1300, " WITHOUT ROWID"] / sizes[1300, ""]
if not (spilled > 2.5 and sizes[900, " WITHOUT ROWID"] <= sizes[900, ""] * 1.05):
    raise SystemExit("changed")
print(f"WITHOUT ROWID, rows of 1,300 bytes take {spilled:.1f} times the space.")
PY
