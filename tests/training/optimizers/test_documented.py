"""The page of training settings has the optimisers as they are: names, settings with defaults, memory."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import jax
import msgspec
import numpy as np
import pytest

from lrurun.config.optimizers import OPTIMIZERS, OptimConfig
from lrurun.nn.network import Model
from lrurun.training import optimizer
from lrurun.training.layout import Layout
from tests.harness import networks
from tests.harness.optims import optim

PAGE = Path(__file__).parents[3] / "docs/training.md"


@cache
def tables() -> list[dict[str, list[str]]]:
    """The tables of the section on optimisers: name of an optimiser -> the other cells of its row."""
    section = PAGE.read_text().partition("## Optimisers\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?m)(?:^\|.*\n)+", section)
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()] for block in blocks]
    return [{name.strip("`"): cells for name, *cells in block[2:]} for block in rows]


def test_every_optimiser_has_its_settings_there() -> None:
    settings, costs = tables()
    assert list(settings) == list(costs) == list(OPTIMIZERS)
    for name, (_, described, _) in settings.items():
        fields = [
            f for f in msgspec.structs.fields(OPTIMIZERS[name].settings) if f.name not in OptimConfig.__struct_fields__
        ]
        values = dict(re.findall(r"`(\w+) = ([^`]+)`", described))
        if name == "prodigy":
            assert "`beta3` = √b2" in described
            fields = [field for field in fields if field.name != "beta3"]
        assert values.keys() == {field.name for field in fields}
        for field in fields:
            assert msgspec.convert(msgspec.json.decode(values[field.name]), type(field.default)) == field.default


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_memory_of_each_state_is_as_documented(name: str) -> None:
    """Of the LRU with layers of 64 features, in multiples of the parameters."""
    model = Model(networks.config(width=64, state=64, depth=2), networks.features())
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    leaves = jax.tree.leaves(params)
    share = sum(leaf.size for leaf in leaves if leaf.ndim == 2) / sum(leaf.size for leaf in leaves)
    found = {}
    for settings in (optim(name), optim(name, momentum=0.9)) if name == "sgd" else (optim(name),):
        layout = Layout(params, optimizer.groups(settings, model.recurrence, params))
        state = optimizer.LayoutOptimizer(settings, layout).init(np.zeros(layout.size, np.float32))
        found[settings] = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / (4 * layout.size)
    documented = [float(number) for number in re.findall(r"\d+", tables()[1][name][0])]
    if name == "muon":  # one for matrices, two for others
        [ratio], [of_matrices, of_others] = found.values(), documented
        expected = [of_matrices * share + of_others * (1 - share)]
        assert of_matrices < ratio < of_others
    else:
        expected = documented
    assert list(found.values()) == pytest.approx(expected, abs=1e-3)
