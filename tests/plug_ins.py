"""Plug-ins for tests: files as they were written for 0.1.0, and a small task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lrurun import plugins
from lrurun.config.recurrences import KINDS

RELEASED = Path(__file__).parent / "release_0_1_0"
"""Files as they were written for that release; they must work unedited, and their digests are in fingerprints."""


BUILT_IN = list(KINDS)
"""The kinds before any plug-in is loaded."""


AVERAGES = (RELEASED / "averages.py.txt").read_text()


ROWS = (RELEASED / "rows.py.txt").read_text()


LADDER = (RELEASED / "averages.toml").read_text()


RADIUS = (RELEASED / "radius.toml").read_text()


MAJORITY = """
import numpy as np

import lrurun
from lrurun.data.task import SPLITS, Source, Spec, Task, limited, portions

SIZES = {"train": 64, "validation": 32, "test": 32}


@lrurun.task
class Majority(Task):
    name = "Majority"
    title = "are most of nine bits set?"
    version = "1"
    classes = 2

    def sizes(self, options):
        return limited(options, SIZES)

    def spec(self, options, vocabulary=()):
        return Spec(name=self.name, kind="features", features=1, classes=2, length=9)

    def offline(self, options):
        def fill(writer, tell):
            for seed, split in enumerate(SPLITS):
                bits = np.random.RandomState(seed).randint(2, size=(self.sizes(options)[split], 9)).astype(np.uint8)
                writer.save(split, "inputs", bits)
                writer.save(split, "labels", (bits.sum(1) > 4).astype(np.uint8))

        return Source(kind="generated", text="nine fair bits", fill=fill, generator={"name": "bits"})
"""


RECIPE = """
task = "Majority"
[about]
source = "ours"
expect = "nothing"
device = "a core"
hours = 0
checked = "never"
[model]
depth = 1
width = 8
state = 4
[optim]
lr = 0.01
recurrent_factor = 0.5
weight_decay = 0.05
[train]
steps = 20
batch = 8
eval_every = 10
"""


def forget() -> None:
    """Makes this process as one that has loaded nothing."""
    for what, name in list(plugins._SOURCES):
        plugins.forget(what, name)
    for state in (plugins._FILES, plugins._NAMED, plugins._INSTALLED, plugins._ABSENT):
        state.clear()
    for name in [name for name in sys.modules if name.startswith("lrurun_plugin_") or name.split(".")[0] == "means"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is removed after it."""
    yield
    forget()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the README's example in it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    Path("averages.py").write_text(AVERAGES)
    Path("averages.toml").write_text(LADDER)
    return tmp_path
