"""Tables as pandas 3.1.1, polars 2.1.0, pyarrow 26.0.1 and mlflow-skinny 3.17.2 write them. Python 3.11."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.trackers.make import environment

PACKAGES = ("pandas==3.1.1", "polars==2.1.0", "pyarrow==26.0.1", "mlflow-skinny==3.17.2")


def runs() -> dict[str, list[object]]:
    """One row for each run: the score is 0.5 + 0.1 * seed, and 0.2 more with norm = layer."""
    rows = [(norm, seed) for norm in ("none", "layer") for seed in range(3)]
    return {
        "run_id": [f"{norm}-{seed}" for norm, seed in rows],
        "state": ["finished"] * 5 + ["crashed"],
        "norm": [norm for norm, _ in rows],
        "seed": [seed for _, seed in rows],
        "lr": [1e-5 if norm == "none" else 0.001 for norm, _ in rows],
        "deep": [seed > 1 for _, seed in rows],
        "test_acc": [0.5 + 0.1 * seed + 0.2 * (norm == "layer") for norm, seed in rows],
    }


def steps() -> dict[str, list[object]]:
    """One row for each step, interleaved: loss is 1 / (step + 1 + seed); val_acc is at even steps alone; the loss of
    run b is NaN at its last step."""
    rows = [(step, run, seed) for step in range(4) for run, seed in (("a", 0), ("b", 1))]
    return {
        "run_id": [run for _, run, _ in rows],
        "step": [step for step, _, _ in rows],
        "seed": [seed for _, _, seed in rows],
        "norm": ["layer" if run == "a" else "none" for _, run, _ in rows],
        "loss": [float("nan") if (step, run) == (3, "b") else 1 / (step + 1 + seed) for step, run, seed in rows],
        "val_acc": [step / 10 + seed if step % 2 == 0 else None for step, _, seed in rows],
    }


def write(folder: Path) -> None:
    """Writes the files, in the environment with the packages."""
    import mlflow
    import pandas
    import polars
    import pyarrow
    from pyarrow import parquet

    pandas.DataFrame(runs()).to_csv(folder / "runs-pandas.csv")  # with its index, a column without a name
    polars.DataFrame(runs()).write_csv(folder / "runs-polars.csv")
    polars.DataFrame(runs()).write_ndjson(folder / "runs-polars.jsonl")
    pandas.DataFrame(runs()).to_json(folder / "runs-pandas.jsonl", orient="records", lines=True)
    polars.DataFrame(steps()).write_csv(folder / "steps-polars.tsv", separator="\t")
    polars.DataFrame(steps()).write_parquet(folder / "steps-polars.parquet")
    pandas.DataFrame(steps()).to_parquet(folder / "steps-pandas.parquet")
    nested = {
        "run_id": ["a", "b"],
        "config": [{"lr": 0.1, "model": {"depth": 2}}, {"lr": 0.2, "model": {"depth": 4}}],
        "correct": [[1, 0, 1], [1, 1, 1]],
        "norm": pyarrow.array(["layer", None]).dictionary_encode(),
    }
    parquet.write_table(pyarrow.table(nested), folder / "nested.parquet")
    pandas.DataFrame(
        {"run_id": ["a", "b", "c"], "disk": ['5"', 'say "hi"', "tab\there"], "acc": [0.1, 0.2, 0.3]}
    ).to_csv(folder / "quotes-pandas.tsv", sep="\t", index=False)
    polars.DataFrame({"run_id": ["a", "b"], "disk": ['5"', '"open'], "acc": [0.1, 0.2]}).write_csv(
        folder / "quotes-polars.tsv", separator="\t", quote_style="never"
    )

    os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "GIT_PYTHON_REFRESH": "quiet"}
    with tempfile.TemporaryDirectory() as store:
        mlflow.set_tracking_uri(f"file:{store}")
        mlflow.set_experiment("digits")
        for seed in range(2):
            with mlflow.start_run(run_name=f"layer-{seed}"):
                mlflow.log_params({"norm": "layer", "lr": 1e-5, "seed": seed})
                mlflow.log_metric("acc", 0.5, step=1)
                mlflow.log_metric("acc", 0.7 + 0.1 * seed, step=2)
                mlflow.set_tags({"mlflow.user": "user", "mlflow.source.name": "train.py"})
        table = mlflow.search_runs(experiment_names=["digits"], order_by=["params.seed"])
        table["artifact_uri"] = "file:artifacts"
        table.to_csv(folder / "mlflow.csv", index=False)


if __name__ == "__main__":
    environment.main("tests.trackers.make.tables", PACKAGES, write)
