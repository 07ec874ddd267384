"""Runs that diverge with other optimisers than AdamW: a result at its step, as any."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from msgspec.structs import replace

from lrurun.data.task import Data
from lrurun.training.events import Ended, Reached
from lrurun.training.loop import train
from tests.harness.optims import optim
from tests.harness.toy import EXECUTION, config, data

__all__ = ["data"]  # a fixture

pytestmark = pytest.mark.slow


def test_too_large_a_rate_is_a_result(data: Data) -> None:
    run = config(optim=optim("sgd", lr=10.0, warmup=0.0, schedule="constant"), norm="layer")
    *_, ended = train(run, EXECUTION, data)
    assert isinstance(ended, Ended)
    assert ended.state == "diverged"
    assert ended.step < 23


def test_an_average_that_is_not_finite_is_a_result(data: Data) -> None:
    """Of schedule-free AdamW, whose average is made of z: its parameters follow at the next step."""
    run = config(optim=optim("schedule_free_adamw"))
    reached = next(event for event in train(run, EXECUTION, data) if isinstance(event, Reached)).snapshot()
    moments = reached.live.moments._replace(z=jax.tree.map(lambda leaf: leaf * np.nan, reached.live.moments.z))
    broken = replace(reached, live=reached.live._replace(moments=moments))
    *_, ended = train(run, EXECUTION, data, resume=broken)
    assert isinstance(ended, Ended)
    assert (ended.state, ended.step) == ("diverged", reached.step + 2)
