"""Folders of Hydra's multiruns: hydra-core 1.3.8, omegaconf 2.3.1, Python 3.11."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.trackers.make import environment

PACKAGES = ["hydra-core==1.3.8", "omegaconf==2.3.1"]

CONFIG = """\
defaults:
  - _self_
seed: 0
norm: layer
lr: 1e-3
lr_text: "1e-3"
clock: 1:30
octal: 010
switch: on
day: 2026-11-28
nothing: null
number: .nan
optimizer:
  name: sgd
  lr: ${lr}
  betas: [0.9, 0.99]
value: 0
"""

PROGRAM = """
import csv, json, pathlib
import hydra
from hydra.core.hydra_config import HydraConfig

@hydra.main(version_base=None, config_path=".", config_name="config")
def program(config):
    folder = pathlib.Path(HydraConfig.get().runtime.output_dir)
    if config.seed == 2:
        raise RuntimeError("broken")
    accuracy = config.seed / 10 + (0.5 if config.norm == "layer" else 0)
    metrics = {"test": {"acc": accuracy}, "loss": float("nan"), "name": "x"}
    folder.joinpath("metrics.json").write_text(json.dumps(metrics))
    with folder.joinpath("metrics.jsonl").open("w") as file:
        for step in (0, 5, 10):
            print(json.dumps({"step": step, "val_acc": accuracy * step / 10}), file=file)
    with folder.joinpath("metrics.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["epoch", "loss", "val_acc"])
        for epoch in range(3):
            rows.writerow([epoch, 1 / (epoch + 1), accuracy if epoch == 2 else ""])

program()
"""


def write(folder: Path) -> None:
    """A multirun of six jobs, of which those with seed 2 fail; one whose values are those of a command line; one run.

    `test.acc` is seed / 10, and 0.5 more with the norm "layer".
    """
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "program.py").write_text(PROGRAM)
    run(folder, "-m", "hydra.sweep.dir=multirun/2026-11-28/12-00-00", "seed=0,1,2", "norm=layer,none", fails=True)
    values = "value=010,on,1e-3,'1e-3',1:30,2026-11-28,null,nan,.nan,1_000,[1,x]"
    run(folder, "-m", "hydra.sweep.dir=values", "seed=1", values)
    run(folder, "hydra.run.dir=outputs/2026-11-28/13-00-00", "seed=3", "+tag=${oc.env:HOME}", "++new.depth=4")


def run(folder: Path, *arguments: str, fails: bool = False) -> None:
    """Runs the program, which returns 1 where a job fails."""
    command = [sys.executable, "program.py", *arguments]
    if subprocess.run(command, cwd=folder, check=False).returncode != fails:
        raise SystemExit(f"{command}: another exit code")


def clean(folder: Path) -> None:
    """Keeps the metrics of the first multirun and of the single run, and removes what names folders and is long."""
    for path in [
        folder / "program.py",
        folder / "config.yaml",
        *folder.rglob("*.log"),
        *folder.glob("values/*/metrics.*"),
    ]:
        path.unlink()
    for path in [*folder.glob("values/*/.hydra/hydra.yaml"), *folder.rglob("multirun.yaml")]:
        path.unlink()
    for path in folder.rglob("hydra.yaml"):
        path.write_text(re.sub(r"/\S+/made\b", "/project", path.read_text()))


if __name__ == "__main__":
    environment.main("tests.trackers.make.hydra", PACKAGES, write, clean)
