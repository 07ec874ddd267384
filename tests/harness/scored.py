"""Two tasks of a user whose metrics are not accuracy: Wave has R^2, Letters bits per byte, which is better if lower."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lrurun import plugins
from tests.harness.plug_ins import RECIPE, forget

TASKS = """
import lrurun
from lrurun.data.metric import Accuracy, BitsPerByte, R2
from lrurun.data.task import limited, Spec, Task


class Scored(Task):
    version = "1"
    classes = 4

    def sizes(self, options):
        return limited(options, {"train": 64, "validation": 32, "test": 32})

    def spec(self, options, vocabulary=()):
        return Spec(name=self.name, kind="features", features=1, classes=self.classes, length=9)


@lrurun.task
class Wave(Scored):
    name = "Wave"
    title = "the height of a wave"
    metric = R2()


@lrurun.task
class Letters(Scored):
    name = "Letters"
    title = "the next letter"
    metric = BitsPerByte(chance=2.0)
    metrics = (metric, Accuracy(chance=0.25))
"""


LADDER = """
name = "sizes"
title = "state sizes"
source = "ours"

[[rung]]
name = "few"
title = "four states"
change = { "model.recurrence.kind" = "diagonal", "model.state" = 4 }

[[rung]]
name = "many"
title = "eight states"
change = { "model.state" = 8 }
"""


def write(folder: Path) -> Path:
    """The file of the tasks in `folder`, beside their recipes, whose profile small has a grid, and the ladder sizes."""
    (folder / "ablations").mkdir(exist_ok=True)
    (folder / "ablations" / "sizes.toml").write_text(LADDER)
    (folder / "recipes").mkdir(exist_ok=True)
    for task in ("Wave", "Letters"):
        text = RECIPE.replace('"Majority"', f'"{task}"') + '[profile.small.tune]\n"optim.lr" = [0.001, 0.01]\n'
        (folder / "recipes" / f"{task}.toml").write_text(text)
    file = folder / "scored.py"
    file.write_text(TASKS)
    return file


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tasks are loaded, from a file in the working directory."""
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path)
    plugins.load(str(file))
    yield file
    forget()
