"""Every recurrence does what all must do, in each of its forms; and what does not is caught."""

from __future__ import annotations

import pytest
from msgspec import structs

from lrurun.config.recurrences import KINDS
from lrurun.nn import conformance

VARIANTS = {name: settings for kind in KINDS for name, settings in conformance.variants(kind).items()}
PLAIN = {next(iter(conformance.variants(kind))) for kind in KINDS}
MARKS = {name: pytest.mark.slow if name in PLAIN else pytest.mark.rare for name in VARIANTS}
MARKS |= dict.fromkeys(("dense, tanh", "diagonal, normalised"), ())


@pytest.mark.parametrize("kind", KINDS)
def test_the_variants_change_every_setting_and_have_every_choice(kind):
    assert conformance.unvaried(kind) == []


def test_settings_that_the_variants_do_not_change_are_found(monkeypatch):
    few = {"": {}, "blocks": {"blocks": 2, "slow_b": False, "c_init": "lecun"}}
    monkeypatch.setitem(KINDS, "s5", structs.replace(KINDS["s5"], variants=few))
    assert conformance.unvaried("s5") == ["conj_sym", "discretization", "c_init", "clip_eigs", "slow_dt"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
def test_conforms(name):
    assert not [finding for finding in conformance.check(VARIANTS[name]) if not finding.passed]
