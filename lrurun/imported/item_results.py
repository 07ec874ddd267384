"""The per-item results of imported runs: whether they belong to the score, as for those that a program logs.

Results that cannot belong to it are left out, and a caution says why: the verdict is about these test items then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import structs

from lrurun.config.imported import ImportTable
from lrurun.errors import plural
from lrurun.imported.recording import Placed, item_results
from lrurun.instances.import_record import Caution

_SHOWN = 3
"""Runs that a caution lists."""


def checked(placed: Sequence[Placed], table: ImportTable) -> tuple[list[Placed], list[Caution]]:
    """The runs without what cannot be the results of their items, and a caution on it."""
    counts = Counter(len(items) for place in placed if (items := place.scored.run.items) is not None)
    usual = table.test_items or (counts.most_common(1)[0][0] if counts else 0)  # of equally many, the first
    kept, faults = [], []
    for place in placed:
        fault = _fault(place, table, usual)
        if fault is not None:
            run = structs.replace(place.scored.run, items=None)
            place = structs.replace(place, scored=structs.replace(place.scored, run=run))
            faults.append(f"{place.scored.label}: {fault}" if fault else "")
        kept.append(place)
    shown = [fault for fault in faults if fault]
    missing = [place.scored.label for place in placed if _lacks_items(place, table)] if counts else []
    cautions = []
    if missing:
        more = f", and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        full = (
            f"{plural(len(missing), 'run')} with a score {'has' if len(missing) == 1 else 'have'} no per-item results, "
            f"unlike the others: {', '.join(missing[:_SHOWN])}{more}. Verdicts on their rungs use none."
        )
        cautions.append(Caution(short="runs without per-item results", full=full))
    if not shown:
        return kept, cautions
    more = f"; and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    full = f"Per-item results of {plural(len(shown), 'run')} are left out: {'; '.join(shown[:_SHOWN])}{more}."
    return kept, [*cautions, Caution(short="per-item results left out", full=full)]


def _lacks_items(place: Placed, table: ImportTable) -> bool:
    """Whether a run that verdicts are about has a score, and no results of its items."""
    run = place.scored
    has_score = math.isfinite((run.result or {}).get(table.result, math.nan))
    return place.stage == "train" and has_score and run.run.items is None


def _fault(place: Placed, table: ImportTable, usual: int) -> str | None:
    """Why a run has results that cannot be those of its items; empty where it has no usable score, None for none."""
    items, score = place.scored.run.items, (place.scored.result or {}).get(table.result, math.nan)
    if items is None:
        return None
    if not math.isfinite(score):
        return ""
    if not items:
        return "there are none"
    results = item_results(items)
    values = results.sums
    if not np.isfinite(values).all():
        index = int(np.flatnonzero(~np.isfinite(values))[0])
        return f"item {index + 1} of {len(items):,} has {values[index]:g}"
    if table.is_share and len(outside := np.flatnonzero((values < 0) | (values > 1))):
        index = int(outside[0])
        return f"item {index + 1} of {len(items):,} has {values[index]:g}, and those of a share are from 0 to 1"
    if len(items) != usual:
        found = "test_items is" if table.test_items is not None else "most runs have"
        return f"there are {len(items):,}, and {found} {usual:,}"
    if not abs(results.mean - score) <= results.tolerance:
        return (
            f"their mean is {results.mean:.9g}, and the score {score:.9g}, which may differ by {results.tolerance:.3g}"
        )
    return None
