"""Results of Ray Tune: ray[tune] 2.60.0, Python 3.11."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.trackers.make import environment

PACKAGES = ["ray[tune]==2.60.0"]


def write(folder: Path) -> None:
    """An experiment with trials that end well, fail after a report and before any, report NaN and add a metric late;
    one that a scheduler stops; one that meets a rule of its experiment, and one that says itself that it is done;
    one whose process is killed.

    `acc` after report i (from 1 on) is seed / 10 + i / 100.
    """
    for experiment in ("ladder", "stopped", "rule", "killed"):
        program = f"from tests.trackers.make.ray import tune; tune({experiment!r}, {str(folder)!r})"
        process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        if process.wait() and experiment != "killed":
            raise SystemExit(f"{experiment}: exit code {process.returncode}")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what Ray leaves


def tune(experiment: str, folder: str) -> None:
    """Runs one experiment into a folder."""
    import ray
    from ray import tune
    from ray.tune.schedulers import MedianStoppingRule

    def program(config: dict) -> None:
        seed = config["seed"]
        if seed == 2:
            raise RuntimeError("broken at the start")
        for report in range(1, 4):
            metrics = {"acc": seed / 10 + report / 100, "nested": {"loss": 1 / report}, "text": "x", "flag": True}
            if seed == 1 and report == 2:
                metrics |= {"late": 5.0, "acc": float("nan"), "infinite": float("inf")}
            if experiment == "rule" and seed == 1 and report == 2:
                metrics["done"] = True
            if seed == 3 and report == 3:
                raise RuntimeError("broken late")
            if experiment == "killed" and report == 3:
                time.sleep(5)  # two reports are written, into the temporary folder of Ray
                os.kill(config["parent"], signal.SIGKILL)
            tune.report(metrics)

    ray.init(num_cpus=1, include_dashboard=False, configure_logging=True, log_to_driver=False)
    space = {"seed": tune.grid_search([0, 1, 2, 3]), "model": {"norm": "layer", "depth": 4}, "lr": 1e-3}
    scheduler = None
    if experiment == "stopped":
        space["seed"] = tune.grid_search([5, 1])
        scheduler = MedianStoppingRule(
            time_attr="training_iteration", metric="acc", mode="max", grace_period=1, min_samples_required=1
        )
    if experiment == "rule":
        space["seed"] = tune.grid_search([5, 0, 1])
    if experiment == "killed":
        space |= {"seed": 0, "parent": os.getpid()}
    tune.Tuner(
        program,
        param_space=space,
        tune_config=tune.TuneConfig(max_concurrent_trials=1, scheduler=scheduler),
        run_config=tune.RunConfig(
            name=experiment,
            storage_path=folder,
            verbose=0,
            stop={"acc": 0.5, "nested/loss": 2} if experiment == "rule" else None,
        ),
    ).fit()


def clean(folder: Path) -> None:
    """Keeps JSON, texts and one CSV file, without pickles, and without the names of the machine and of folders."""
    for path in sorted(folder.rglob("*")):
        # basic-variant-state-*.json is a pickle, in spite of its suffix
        keeps = path.suffix in (".json", ".txt") and not path.name.startswith("basic-variant-state")
        if path.is_file() and not keeps and not (path.name == "progress.csv" and "seed=1" in path.parent.name):
            path.unlink()
    for path in folder.rglob("*.*"):
        if path.is_file():
            text = re.sub(r"/[^\s\"]+/(site-packages|made|tests)\b", r"/project/\1", path.read_text())
            text = re.sub(r"[0-9a-f]{40,}", "80054e2e", text)  # a pickled None
            text = re.sub(r"\b\d+\.\d+\.\d+\.\d+\b", "192.0.2.1", text)
            path.write_text(text.replace(socket.gethostname(), "host"))


if __name__ == "__main__":
    environment.main("tests.trackers.make.ray", PACKAGES, write, clean)
