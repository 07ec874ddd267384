#!/usr/bin/env bash
# One would guess: DataFrame.to_json writes as many digits as a number has, as to_csv and json.dumps do.
# What happens: by default it writes ten decimals, not ten significant digits: 1e-12 becomes 0.0, while 1e-17 stays 1e-17, and a
#   rate of 1e-5 / 3 has five digits. double_precision, which sets their number, is at most 15.
# Seen in: pandas 3.1.1.
# Whom it hurts: who exports settings of runs as JSON lines: learning rates, epsilons and penalties that were different are
#   equal or zero, and a score is not the one in the CSV of the same frame.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pandas==3.1.1
"$folder/venv/bin/python" - <<'PY'
import json

import pandas as pd

print(f"pandas {pd.__version__}")
runs = {"rate": 1e-5 / 3, "epsilon": 1e-12, "penalty": 1e-17, "accuracy": 2 / 3}
frame = pd.DataFrame([runs])
by_default = json.loads(frame.to_json(orient="records", lines=True))
precise = json.loads(frame.to_json(orient="records", lines=True, double_precision=15))
print(f"in the frame:        {runs}")
print(f"to_json:             {by_default}")
print(f"double_precision=15: {precise}")
if (by_default["rate"], by_default["epsilon"], by_default["penalty"]) != (0.0000033333, 0.0, 1e-17):
    raise SystemExit("changed")
PY
echo "Small settings are lost in JSON of pandas."
