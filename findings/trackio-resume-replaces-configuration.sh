#!/usr/bin/env bash
# One would guess: a run that is resumed keeps the configuration with which it began; resume="allow" is given no other.
# What happens: trackio.init(resume="allow") without config replaces the stored configuration by an empty one, silently.
#   The metrics of the beginning stay. And a run that logs nothing is not in the file at all, although it was given a
#   configuration: whoever counts runs that crashed at the start finds none.
# Seen in: Trackio 0.43.0.
# Whom it hurts: whoever compares settings: a resumed run has none, and falls out of every group.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet trackio==0.43.0
cd "$folder"
cat > run.py <<'PY'
import sys

import trackio

name, norm, *more = sys.argv[1:]
options = {"config": {"norm": norm}} if norm else {}
trackio.init(project="norms", name=name, resume="allow", **options)
if "silent" not in more:
    trackio.log({"loss": 1.0})
trackio.finish()
PY
export TRACKIO_DIR="$folder/store"
for words in "kept layer" "resumed layer" "resumed ''" "unlogged layer silent"; do
  eval "venv/bin/python run.py $words" > /dev/null 2>&1
done
venv/bin/python - <<'PY'
import json
import sqlite3
from importlib.metadata import version

print(f"trackio {version('trackio')}")
database = sqlite3.connect("store/norms.db")
seen = {}
for name, config in database.execute("SELECT run_name, config FROM configs"):
    points = database.execute("SELECT count(*) FROM metrics WHERE run_name = ?", (name,)).fetchone()[0]
    seen[name] = (json.loads(config).get("norm"), points)
    print(f"{name}: norm {seen[name][0]}, {points} points")
print("unlogged:", "is there" if "unlogged" in seen else "is not there")
if seen != {"kept": ("layer", 1), "resumed": (None, 2)}:
    raise SystemExit(f"changed: {seen}")
print("The resumed run has both points, and no configuration.")
PY
