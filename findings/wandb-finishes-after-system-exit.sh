#!/usr/bin/env bash
# One would guess: a run whose process ends with code 3 has code 3 in W&B, and counts as crashed.
# What happens: W&B sees the code only where it goes through `sys.exit` as W&B has replaced it in `wandb.init`. After
#   `raise SystemExit(3)`, or `exit` imported from sys before, the exit record has code 0: the run is "finished". After
#   SystemExit in a `with` block the code is 1; after `os._exit` there is no record.
# Seen in: wandb 0.31.0, offline.
# Whom it hurts: who takes "finished" for complete: a training that gave up with an error code counts, with the metrics of
#   whatever step it was at.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet wandb==0.31.0
cd "$folder"
cat >run.py <<'PY'
import sys
from sys import exit as leave

import wandb

way = sys.argv[1]
run = wandb.init(mode="offline", id=way, settings=wandb.Settings(silent=True))
run.log({"loss": 1.0})
if way == "sys.exit":
    sys.exit(3)
if way == "raise":
    raise SystemExit(3)
if way == "imported":
    leave(3)
with run:
    raise SystemExit(3)
PY
for way in sys.exit raise imported with; do
  code=0
  venv/bin/python run.py "$way" || code=$?
  echo "$way: the process ends with code $code"
done
sleep 3 # under load a file is not complete yet when its process has ended
venv/bin/python - <<'PY'
import glob
import struct

import wandb
from wandb.proto import wandb_internal_pb2

print(f"wandb {wandb.__version__}")
codes = {}
for path in glob.glob("wandb/offline-run-*/*.wandb"):
    with open(path, "rb") as file:
        file.seek(7)
        while header := file.read(7):  # these files are shorter than a block
            record = wandb_internal_pb2.Record()
            record.ParseFromString(file.read(struct.unpack("<IHB", header)[1]))
            if record.HasField("exit"):
                codes[path.rpartition("run-")[2].removesuffix(".wandb")] = record.exit.exit_code
for way, code in sorted(codes.items()):
    print(f"{way}: the exit record has code {code}")
if codes != {"sys.exit": 3, "raise": 0, "imported": 0, "with": 1}:
    raise SystemExit("changed")
PY
echo "A run that ended with an error code may be finished for W&B."
