#!/usr/bin/env bash
# One would guess: `done` in the last row of a trial's result.json is true if the trial ran to its end.
# What happens: the other way round. Where the program of a trial ends by itself, all rows in the file have `done: false`; the last row
#   of a trial that a scheduler cut short has `done: true`. `experiment_state-*.json` calls both TERMINATED.
# Seen in: ray 2.60.0.
# Whom it hurts: who reads results from the files and keeps the rows that are done: these are the trials without a final score.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "ray[tune]==2.60.0"
cat > "$folder/program.py" <<'PY'
import json
import sys
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import MedianStoppingRule


def program(config):
    for report in range(3):
        tune.report({"accuracy": config["seed"] + report})


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    scheduler = MedianStoppingRule(
        time_attr="training_iteration", metric="accuracy", mode="max", grace_period=1, min_samples_required=1
    )
    tune.Tuner(
        program,
        param_space={"seed": tune.grid_search([5, 1])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1, scheduler=scheduler),
        run_config=tune.RunConfig(name="results", storage_path=str(folder), verbose=0),
    ).fit()
    seen = []
    for path in sorted((folder / "results").glob("*/result.json")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        seen.append((len(rows), rows[-1]["done"]))
    [state] = (folder / "results").glob("experiment_state-*.json")
    statuses = [json.loads(trial)["status"] for trial, _ in json.loads(state.read_text())["trial_data"]]
    print(f"ray {ray.__version__}: reports and `done` of the last one: {seen}; statuses {statuses}")
    if seen != [(3, False), (1, True)] or statuses != ["TERMINATED", "TERMINATED"]:
        raise SystemExit("changed")
PY
"$folder/venv/bin/python" "$folder/program.py" "$folder" > "$folder/log" 2>&1 || { tail -5 "$folder/log"; exit 1; }
grep "^ray " "$folder/log"
echo "In result.json, done is true only of a trial that was cut short."
