"""The picture and the table of schedules on the page of training settings."""

from __future__ import annotations

from msgspec import structs

from lrurun.config import planning
from lrurun.config.schedules import SCHEDULES
from lrurun.report.figures import figure_files, rates
from tests.docs import table
from tests.docs.task_map import PICTURES

PICTURE = PICTURES / "schedules.svg"

FORMULAS = {
    "cosine": "floor + (lr - floor) (1 + cos(π (t - W) / (T - W))) / 2",
    "constant": "lr",
    "linear": "floor + (lr - floor) (T - t) / (T - W)",
    "wsd": "lr; in the last C steps floor + (lr - floor) (T - t) / C",
    "inverse-sqrt": "lr √(W / t), at least floor",
}


def schedules() -> str:
    """The rate of each schedule after the warm-up, with its source."""
    rows = [[f"`{name}`", FORMULAS[name], row.source or "–"] for name, row in SCHEDULES.items()]
    return table(["`optim.schedule`", "learning rate at step t, from step W on", "source"], rows)


def picture() -> str:
    """The schedules over 1,000 steps, with the other settings at their defaults and one rate for all parameters."""
    rung = planning.make("npDigits").rungs[0].training
    train = structs.replace(rung.train, steps=1000)
    drawn = []
    for name in SCHEDULES:
        optim = structs.replace(rung.optim, schedule=name, lr=0.01, recurrent_factor=1.0)
        drawn.append((name, structs.replace(rung, optim=optim, train=train)))
    return figure_files.render(rates.figure(drawn, title=""), ".svg", "page").decode()
