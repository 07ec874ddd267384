#!/usr/bin/env bash
# One would guess: the params.yaml that DVCLive writes, read by yaml.safe_load, has the parameters that were logged.
# What happens: DVCLive writes YAML 1.2, in which a text that looks like a value of YAML 1.1 needs no quotes, and PyYAML
#   reads YAML 1.1: the text "no" is False, "1:30" is 90, and the number 1e-05 is a text.
# Seen in: DVCLive 3.49.1, PyYAML 6.0.3.
# Whom it hurts: whoever groups runs by their settings: learning rates from 1e-05 on are texts, and sort and compare as
#   such, and an option "no" becomes one with the runs in which it was False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dvclive==3.49.1 pyyaml==6.0.3
cd "$folder"
DVC_NO_ANALYTICS=true venv/bin/python - 2> /dev/null <<'PY'
from importlib.metadata import version

import yaml
from dvclive import Live

print(f"dvclive {version('dvclive')}, pyyaml {version('pyyaml')}")
logged = {"lr": 1e-5, "decay": 0.1, "bias": "no", "time": "1:30", "name": "adam"}
with Live("dvclive", save_dvc_exp=False, dvcyaml=None) as live:
    live.log_params(logged)
with open("dvclive/params.yaml") as file:
    text = file.read()
print(text, end="")
read = yaml.safe_load(text)
changed = {name: read[name] for name in logged if read[name] != logged[name] or type(read[name]) is not type(logged[name])}
print("read otherwise:", changed)
if changed != {"lr": "1e-05", "bias": False, "time": 90}:
    raise SystemExit("changed")
print("Three of five parameters are read as other values.")
PY
