"""Every recurrence does what all must do, in each of its forms; and what does not is caught."""

from __future__ import annotations

from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from lrurun import conformance
from lrurun.config import RECURRENCES

QUICK = ("dense, tanh", "diagonal, normalised")
VARIANTS = {name: settings for kind in RECURRENCES for name, settings in conformance.variants(kind).items()}


def test_every_setting_is_moved_and_every_choice_is_among_them():
    ranges = {"r_min", "r_max", "max_phase", "dt_min", "dt_max"}
    for kind, make in RECURRENCES.items():
        for field, hint in get_type_hints(make).items():
            values = {getattr(settings, field) for settings in conformance.variants(kind).values()}
            choices = {False, True} if hint is bool else set(get_args(hint)) if get_origin(hint) is Literal else set()
            assert choices <= values, (kind, field)
            assert len(values) > 1 or field in ranges, (kind, field)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in VARIANTS])
def test_conforms(name):
    assert not [finding for finding in conformance.check(VARIANTS[name]) if not finding.passed]
