"""The page of training settings has the schedules that training follows."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.schedules import SCHEDULES, learning_rates
from tests.docs import generated, schedules, task_map


def test_the_picture_shows_the_schedules() -> None:
    picture, made = schedules.PICTURE.read_text(), schedules.picture()
    assert task_map.texts(picture) == task_map.texts(made), "run: python -m tests.docs.generated --write"
    assert task_map.lines(picture) == pytest.approx(task_map.lines(made), abs=1.0)
    assert {*SCHEDULES} < {*task_map.texts(picture)}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_formulas_of_the_page_are_those_of_training(name: str) -> None:
    steps, first, last = 200, 20, 50
    changes = {"cooldown": 0.25} if name == "wsd" else {}
    config = AdamW(lr=0.01, recurrent_factor=1.0, weight_decay=0.0, schedule=name, floor=0.004, **changes)  # type: ignore[arg-type]
    whole = schedules.FORMULAS[name]
    assert whole in (generated.ROOT / "docs" / "training.md").read_text()
    whole, *cooldown = whole.split("; in the last C steps ")
    text, _, bound = whole.partition(", at least ")

    def value(formula: str, step: int) -> float:
        python = re.sub(r"(?<=[\w)]) (?=[(√])", " * ", formula).replace("√", "sqrt").replace("π", "pi")
        python = re.sub(r"(cos|sqrt) \* \(", r"\1(", python)
        names = {"lr": 0.01, "floor": 0.004, "t": step, "T": steps, "W": first, "C": last}
        return float(eval(python, {"cos": np.cos, "sqrt": np.sqrt, "pi": np.pi} | names))

    wanted = [value(cooldown[0] if cooldown and step >= steps - last else text, step) for step in range(first, steps)]
    wanted = [max(rate, 0.004) for rate in wanted] if bound else wanted
    np.testing.assert_allclose(learning_rates(config, steps)[first:], wanted, rtol=1e-6)
