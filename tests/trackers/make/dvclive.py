"""Folders of DVCLive 3.49.1 (NumPy 2.4.6, Python 3.11): `python -m tests.trackers.make.dvclive`."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from tests.trackers.make.environment import main

PACKAGES = ("dvclive==3.49.1", "numpy==2.4.6")
PARAMETERS: dict[str, Any] = {
    "norm": "layer",
    "seed": 3,
    "optim": {"lr": 1e-5, "decay": 0.1, "huge": 1e20, "nesterov": True, "betas": [0.9, 0.999]},
    "no": "no",
    "text": "1e-3",
    "octal": "010",
    "time": "1:30",
    "day": "2024-01-01",
    "nothing": None,
    "nan": math.nan,
    "inf": -math.inf,
    "ü": "ä: b",
}


def write(folder: Path) -> None:
    import numpy as np
    from dvclive import Live

    os.environ["DVC_NO_ANALYTICS"] = "true"
    os.chdir(folder)

    def live(name: str, **options: Any) -> Any:
        return Live(str(Path("runs", name, "dvclive")), save_dvc_exp=False, dvcyaml=None, **options)

    with live("whole") as run:
        run.log_params(PARAMETERS)
        for step, loss in enumerate([1.0, math.nan, math.inf]):
            run.log_metric("train/loss", loss)
            run.log_metric("val/deep/acc", np.float32(0.1) * step)
            run.log_metric("top.5", 0.5 + step / 10, timestamp=True)
            run.next_step()
        run.log_metric("unplotted", 7, plot=False)
    with live("no-steps") as run:
        run.log_param("norm", "none")
        run.log_metric("acc", 0.5)
        run.log_metric("bad/nan", math.nan)
        run.log_metric("bad/inf", -math.inf)
    for resume in (False, True):
        with live("resumed", resume=resume) as run:
            run.log_param("norm", "batch")
            for step in range(2):
                run.log_metric("acc", 0.5 + step / 10 + resume / 4)
                run.next_step()
    for value in (1.0, 2.0):
        with live("again") as run:
            run.log_param("norm", "batch")
            if value == 1:
                run.log_metric("old", value)
            run.log_metric("acc", value)
            run.next_step()
    with live("summary") as run:
        for step in range(3):
            run.log_metric("acc", [0.5, 0.75, 0.25][step])
            run.next_step()
        run.summary["acc"] = 0.75


if __name__ == "__main__":
    main(__spec__.name, PACKAGES, write)
