#!/usr/bin/env bash
# One would guess: log_metric(name, value, step=3, dataset=...) is at step 3 when it is read back.
# What happens: in a file store it is at step 0. The line in the file is right (time, value, 3, name and digest of the data
#   set), and the reader takes the third word for the step only if there are exactly three. A database has step 3.
# Seen in: mlflow-skinny 3.17.2 (file stores need MLFLOW_ALLOW_FILE_STORE=true).
# Whom it hurts: who evaluates on named data sets during training and reads the curves by MLflow's client or page: all
#   points of such a metric are at one step. The file has the steps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mlflow-skinny==3.17.2 sqlalchemy alembic numpy pandas
cd "$folder"
export MLFLOW_ALLOW_FILE_STORE=true MLFLOW_DISABLE_TELEMETRY=true GIT_PYTHON_REFRESH=quiet
"$folder/venv/bin/python" - <<'PY'
from pathlib import Path

import mlflow
from mlflow.data.http_dataset_source import HTTPDatasetSource
from mlflow.data.meta_dataset import MetaDataset

print(f"mlflow-skinny {mlflow.__version__}")
data = MetaDataset(HTTPDatasetSource("http://example.org/digits.csv"), name="digits", digest="d1g1")
mlflow.set_tracking_uri("file:mlruns")
mlflow.set_experiment("steps")
with mlflow.start_run() as run:
    mlflow.log_metric("plain", 0.5, step=3)
    mlflow.log_metric("on data", 0.5, step=3, dataset=data)
client = mlflow.MlflowClient()
steps = {name: client.get_metric_history(run.info.run_id, name)[0].step for name in ("plain", "on data")}
[file] = Path("mlruns").glob("*/*/metrics/on data")
print(f"the file has {file.read_text().split(' ')[1:]!r}; steps that are read back: {steps}")
if steps != {"plain": 3, "on data": 0}:
    raise SystemExit("changed")
print("A metric that was logged with a data set is at step 0.")
PY
