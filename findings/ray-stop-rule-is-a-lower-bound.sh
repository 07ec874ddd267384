#!/usr/bin/env bash
# One would guess: `stop={"loss": 0.3}` with `mode="min"` ends a trial once its loss has come down to 0.3.
# What happens: the rule is `>=` for every metric, whatever the mode: the first report, whose loss is larger, ends each trial.
# Seen in: ray 2.60.0.
# Whom it hurts: who stops on a loss, and takes trials of one step for trained ones: all of them are TERMINATED.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "ray[tune]==2.60.0"
cat > "$folder/program.py" <<'PY'
import sys
from pathlib import Path

import ray
from ray import tune


def program(config):
    for loss in (1.0, 0.5, 0.3, 0.2):
        tune.report({"loss": loss})


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    results = tune.Tuner(
        program,
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="results", storage_path=sys.argv[1], stop={"loss": 0.3}, verbose=0),
    ).fit()
    frame = results[0].metrics_dataframe
    losses = [] if frame is None else frame["loss"].tolist()
    print(f"ray {ray.__version__}: stop at a loss of 0.3; the losses that were reported: {losses}, of 1.0, 0.5, 0.3, 0.2")
    if losses != [1.0]:
        raise SystemExit("changed")
PY
"$folder/venv/bin/python" "$folder/program.py" "$folder" > "$folder/log" 2>&1 || { tail -5 "$folder/log"; exit 1; }
grep "^ray " "$folder/log"
echo "A rule of stop is a lower bound: the first loss above it ends the trial."
