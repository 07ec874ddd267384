"""Plug-ins for tests: a recurrence and an optimiser with their ladders, a ladder of lrurun's own, and a small task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lrurun import machine, plugins
from lrurun.config.recurrences import KINDS

BUILT_IN = list(KINDS)
"""The kinds before any plug-in is loaded."""


AVERAGES = '''
import jax
import jax.numpy as jnp
import msgspec

import lrurun


@lrurun.recurrence("averages")
class Averages(lrurun.Recurrence):
    """Running averages x_k = a x_(k-1) + (1 - a) B u_k with N rates a; y_k = C x_k."""

    class Settings(msgspec.Struct):
        longest: float = 32.0  # steps that the slowest average remembers

    recurrent_parameters = frozenset({"rate"})  # trained at lr * recurrent_factor, without decay

    def init(self, key):
        b, c = jax.random.normal(key, (2, self.state, self.width))
        rate = jnp.log(jnp.geomspace(1.0, self.settings.longest, self.state))
        return {"rate": rate, "B": b / self.width**0.5, "C": c.T / self.state**0.5}

    def initial_state(self, batch):
        return jnp.zeros((batch, self.state))

    def step(self, params, x, u):
        self.require_causal()
        a = jax.nn.sigmoid(params["rate"])[None, :]
        x = a * x + (1.0 - a) * self.product(u, params["B"])
        return x, self.product(x, params["C"])

    def scan(self, params, u, mask=None):  # time first, (T, B, H); padding, at the end, is where mask is false
        a = jax.nn.sigmoid(params["rate"])[None, :]
        v = (1.0 - a[None]) * self.product(u if mask is None else jnp.where(mask[..., None], u, 0.0), params["B"])
        ways = (False, True) if self.bidirectional else (False,)
        x = sum(jax.lax.scan(lambda x, v_k: (a * x + v_k,) * 2, 0.0 * v[0], v, reverse=way)[1] for way in ways)
        return self.product(x, params["C"])
'''.lstrip()


LADDER = """
name = "averages"
title = "running averages instead of complex modes"
source = "ours"
load = ["averages.py"]

[[rung]]
name = "lru"
title = "Linear Recurrent Unit"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.normalize" = true }

[[rung]]
name = "averages"
title = "running averages"
change = { "model.recurrence.kind" = "averages", "model.recurrence.longest" = 64.0 }
""".lstrip()


SIGNUM = '''
import msgspec
import optax

import lrurun


@lrurun.optimizer("signum")
class Signum(lrurun.Optimizer):
    """The sign of a momentum."""

    on_vector = True

    class Settings(msgspec.Struct):
        momentum: float = 0.9

    def transformation(self):
        return optax.chain(optax.trace(self.settings.momentum), optax.scale_by_sign())
'''.lstrip()


OPTIMIZERS_LADDER = """
name = "signs"
title = "signs in place of Adam"
source = "ours"
load = ["signum.py"]

[[rung]]
name = "adamw"
title = "Linear Recurrent Unit"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.normalize" = true }

[[rung]]
name = "signum"
title = "signs"
change = { "optim.name" = "signum", "optim.momentum" = 0.5, "optim.lr" = 0.001 }
""".lstrip()


RADIUS = """
name = "radius"
title = "how far out the eigenvalues start"
source = "ours"

[[rung]]
name = "disk"
title = "whole disk"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.normalize" = true }

[[rung]]
name = "ring"
title = "outer ring"
change = { "model.recurrence.r_min" = 0.9, "model.recurrence.r_max" = 0.99 }

[[claim]]
text = "A start near the unit circle helps"
source = "ours"
rung = "ring"
than = "disk"
""".lstrip()


MAJORITY = """
import numpy as np

import lrurun
from lrurun.data.splits import portions
from lrurun.data.task import limited, SPLITS, Source, Spec, Task

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
    for state in (plugins._FILES, plugins._NAMED, plugins._INSTALLED):
        state.clear()
    machine._entry_points.cache_clear()
    for name in [name for name in sys.modules if name.startswith("lrurun_plugin_") or name.split(".")[0] == "means"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is removed after it, and what an earlier one did before."""
    forget()
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
