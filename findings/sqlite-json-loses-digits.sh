#!/usr/bin/env bash
# One would guess: a double that SQLite writes into JSON, as by json_array or json_group_array, is the same double when it is read
#   again.
# What happens: up to 3.50 at least, the JSON functions write 15 significant digits, as the conversion to text does: 0.1 + 0.2
#   becomes 0.3, and json_extract of it does not equal the column. 3.54 writes as many digits as it takes.
# Seen in: SQLite 3.40.1 (Debian 12), 3.45.3, 3.46.1 and 3.50.4; changed in 3.54.1.
# Whom it hurts: who collects scores in one row by json_group_array: results are no longer equal bit for bit, only on some
#   machines, as Python takes the SQLite of the system.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
for version in 3.50.4.0 3.54.1.0; do
  "$folder/venv/bin/pip" install --quiet "apsw==$version"
  "$folder/venv/bin/python" - <<'PY'
import apsw

version = apsw.sqlite_lib_version()
score = 0.1 + 0.2
rows = apsw.Connection(":memory:").execute("SELECT json_array(?1), json_extract(json_array(?1), '$[0]') = ?1", (score,))
text, equal = next(iter(rows))
print(f"SQLite {version}: {score!r} is written as {text}; read again it is {'equal' if equal else 'another number'}")
expected = ("[0.3]", 0) if version == "3.50.4" else ("[0.30000000000000004]", 1)
if (text, equal) != expected:
    raise SystemExit("changed")
PY
done
echo "Whether JSON keeps a double depends on the version of SQLite."
