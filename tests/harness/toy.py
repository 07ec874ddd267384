"""A small task to train on, a run of it, and how two runs are compared."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.schema import Execution, ModelConfig, RunConfig, TrainConfig
from lrurun.data.task import Data, Spec, Split
from lrurun.training.events import Event, Measured, Snapshot

EXECUTION = Execution(steps_per_dispatch=5, scan_backend="sequential")


def config(**changes: object) -> RunConfig:
    fields = {
        "recurrence": LRUSettings(normalize=True, r_min=0.5, r_max=0.9),
        "norm": "batch",
        "dropout": 0.1,
        "lr": 0.01,
        "steps": 23,
        "eval_every": 9,
        "seed": 3,
        "batch": 8,
        "optim": None,
    } | changes
    return RunConfig(
        task="toy",
        data={"version": "1"},
        model=ModelConfig(
            recurrence=fields["recurrence"],  # type: ignore[arg-type]
            depth=1,
            width=6,
            state=5,
            norm=fields["norm"],  # type: ignore[arg-type]
            dropout=fields["dropout"],  # type: ignore[arg-type]
        ),
        optim=fields["optim"] or AdamW(lr=fields["lr"], recurrent_factor=0.5, weight_decay=0.05),  # type: ignore[arg-type]
        train=TrainConfig(
            steps=fields["steps"],  # type: ignore[arg-type]
            batch=fields["batch"],  # type: ignore[arg-type]
            eval_every=fields["eval_every"],  # type: ignore[arg-type]
            log_every=4,
        ),
        seed=fields["seed"],  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def data() -> Data:
    """The data of the task."""
    return make_data()


def make_data() -> Data:
    """Sequences of 0 and 1 of different lengths; the label says whether the ones are in the majority."""
    draw = np.random.RandomState(0)

    def split(n: int) -> Split:
        lengths = draw.randint(3, 13, n).astype(np.int32)
        inputs = draw.randint(0, 2, (n, 12)).astype(np.uint8)
        inputs[np.arange(12)[None] >= lengths[:, None]] = 0
        labels = (2 * inputs.sum(1) > lengths).astype(np.uint8)
        return Split(inputs=inputs, labels=labels, lengths=lengths)

    spec = Spec(name="toy", kind="features", features=1, classes=2, length=12)
    return Data(spec=spec, sha256="sha256:0", train=split(50), validation=split(21), test=split(19))


def history(events: list[Event]) -> dict[tuple[int, str], float]:
    """The rows that a ledger would keep, those about the machine left out."""
    return {
        (event.step, key): value
        for event in events
        if isinstance(event, Measured)
        for key, value in event.values.items()
        if not key.startswith("machine/")
    }


def leaves(snapshot: Snapshot) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves((snapshot.live, snapshot.best))]


def assert_same(a: Snapshot, b: Snapshot) -> None:
    assert (a.step, a.score, a.best_step) == (b.step, b.score, b.best_step)
    for left, right in zip(leaves(a), leaves(b), strict=True):
        assert left.tobytes() == right.tobytes()
