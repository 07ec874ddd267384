"""A ladder instance compared rung by rung: runs of the ledger become the rows of one table."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lrurun import catalog
from lrurun.config import shared_settings
from lrurun.errors import LrurunError
from lrurun.report import claims, statistics
from lrurun.report.claims import Verdict

if TYPE_CHECKING:
    # The words alone: the package of the ledger brings its database with it.
    from lrurun.ledger import values

METRIC = "test/accuracy"
SPEED = "machine/steps_per_second"
PAPER_PROTOCOL = 'protocol = "paper": models were selected as published, where that used the test split'
"""The note on runs of that protocol."""


class Other(Struct, frozen=True, kw_only=True):
    """A run that no mean counts."""

    id: str
    state: str


class Row(Struct, frozen=True, kw_only=True):
    """A rung. Scores and differences are fractions."""

    rung: str
    title: str
    on: str | None
    """The rung that it changes; the first changes none."""
    branches: bool
    """Whether that is another than the rung before."""
    n: int
    """Finished seeds with a score: what the mean is over."""
    mean: float | None
    stderr: float | None
    delta: float | None
    """Against the rung that it changes."""
    delta_low: float | None
    delta_high: float | None
    """Ends of the 95 % interval."""
    p_value: float | None
    """Welch, two-sided, Holm-corrected over the table."""
    diverged: int
    failed: int
    unfinished: int
    parameters: int | None
    steps_per_second: float | None
    """Median over the finished seeds."""
    speedup: float | None
    """Over the first rung of the ladder."""
    published: tuple[catalog.Published, ...]
    runs: tuple[str, ...]
    """Ids that n counts, in order of their seeds."""
    other_runs: tuple[Other, ...]
    same_as_before: bool
    code_versions: tuple[str, ...]
    test_selected: bool
    """Whether a model that counts was selected on the test split."""


class Report(Struct, frozen=True, kw_only=True):
    """One table with its claims and footnotes."""

    task: str
    ladder: str
    title: str
    question: str
    profile: str | None
    instance: str
    metric: str
    rows: tuple[Row, ...]
    claims: tuple[Verdict, ...]
    detectable: float | None
    """The smallest difference that `detectable_seeds` seeds a side could have shown."""
    detectable_seeds: int | None
    spread: float | None
    """Standard deviation over seeds, pooled over the rungs."""
    test_items: int | None
    data: dict[str, Any]
    """Of the data that the runs were trained on: "source", "kind", "baselines"; empty where that is not recorded."""
    notes: tuple[str, ...]
    grid: catalog.Grid | None = None
    """The rows on two axes."""


class Selected(Struct, frozen=True, kw_only=True):
    """The runs of a rung."""

    of: str
    """The rung that they were made for: another, where that has the same settings."""
    runs: tuple[values.Run, ...]
    """All final ones, in order of their seeds."""
    counted: tuple[values.Run, ...]
    """The finished ones with a finite score."""
    scores: tuple[float, ...]
    """Of those."""
    parameters: int | None


def build(
    ladder: catalog.Ladder,
    *,
    task: str,
    profile: str | None,
    instance: str,
    runs: Sequence[values.Run],
    same_as_before: Collection[str] = frozenset(),
    test_items: int | None = None,
    data: Mapping[str, Any] | None = None,
    chance: float | None = None,
    notes: Sequence[str] = (),
    metric: str = METRIC,
) -> Report:
    """The report on the ladder instance of key `instance`, from `runs`, of which others' and tuning runs are ignored.

    `same_as_before` names rungs whose settings equal those of the rung that they change, `chance` is the score that a
    diverged run counts as, `notes` are sentences for the foot. Runs of unequal data are refused.
    """
    notes = list(notes)
    selected = select(ladder, instance=instance, runs=runs, same_as_before=same_as_before, metric=metric, notes=notes)
    if any(_test_selected(run) for one in selected.values() for run in one.runs):
        notes.append(PAPER_PROTOCOL)

    scores = {rung: one.scores for rung, one in selected.items()}
    shared = {rung for rung, one in selected.items() if one.of != rung}
    bases = ladder.bases
    differences = [
        None if on is None or rung in shared else statistics.difference(scores[rung], scores[on])
        for rung, on in bases.items()
    ]
    p_values = statistics.holm([delta.p_value() if delta else None for delta in differences])
    speeds = {rung: _speed(one.counted) for rung, one in selected.items()}
    base = speeds[ladder.rungs[0].name] if ladder.rungs else None

    rows: list[Row] = []
    for rung, delta, p_value in zip(ladder.rungs, differences, p_values, strict=True):
        on = bases[rung.name]
        members, counted = selected[rung.name].runs, selected[rung.name].counted
        counted_ids = {run.id for run in counted}
        states = [run.state for run in members]
        low, high = (delta.interval(0.95) if delta else None) or (None, None)
        same = rung.name in shared
        speed = speeds[rung.name]
        rows.append(
            Row(
                rung=rung.name,
                title=rung.title,
                on=on,
                branches=on != (rows[-1].rung if rows else None),
                n=len(counted),
                mean=statistics.mean(scores[rung.name]),
                stderr=statistics.stderr(scores[rung.name]),
                delta=delta.estimate if delta else 0.0 if same and counted else None,
                delta_low=low,
                delta_high=high,
                p_value=p_value,
                diverged=states.count("diverged"),
                failed=states.count("failed"),
                unfinished=sum(state in ("queued", "running", "interrupted") for state in states),
                parameters=selected[rung.name].parameters,
                steps_per_second=speed,
                speedup=speed / base if speed and base else None,
                published=rung.published.get(task, ()),
                runs=tuple(run.id for run in counted),
                other_runs=tuple(Other(id=run.id, state=run.state) for run in members if run.id not in counted_ids),
                same_as_before=same,
                code_versions=tuple(sorted({version for run in counted for version in run.code})),
                test_selected=any(_test_selected(run) for run in counted),
            )
        )

    # A shared rung has no seeds of its own: counted twice, its runs would pretend to more degrees of freedom.
    own = [scores[rung.name] for rung in ladder.rungs if rung.name not in shared]
    spread = statistics.pooled_spread(own)
    seeds = min((len(sample) for sample in own if len(sample) >= 2), default=None)
    sides = {
        rung.name: claims.Side(
            scores=tuple(scores[rung.name]),
            diverged=sum(run.state == "diverged" for run in selected[rung.name].runs),
            runs=frozenset(run.id for run in selected[rung.name].runs),
        )
        for rung in ladder.rungs
    }
    return Report(
        task=task,
        ladder=ladder.name,
        title=ladder.title,
        question=ladder.question,
        profile=profile,
        instance=instance,
        metric=metric,
        rows=tuple(rows),
        claims=claims.judge(ladder, sides, task=task, chance=chance),
        detectable=statistics.detectable(spread, seeds) if spread and seeds else None,
        detectable_seeds=seeds if spread else None,
        spread=spread,
        test_items=test_items,
        data=dict(data or {}),
        notes=tuple(notes),
        grid=ladder.grid,
    )


def _test_selected(run: values.Run) -> bool:
    return bool(run.config.get("train", {}).get("protocol") == "paper")


def select(
    ladder: catalog.Ladder,
    *,
    instance: str,
    runs: Sequence[values.Run],
    same_as_before: Collection[str],
    metric: str,
    notes: list[str],
) -> dict[str, Selected]:
    """Rung -> its runs, in the ladder's order, of those that belong to `instance`; `notes` is told what is left out.

    Raises:
        LrurunError: runs that count were trained on unequal data.
    """
    found: dict[str, Selected] = {}
    notes.extend(_excluded(ladder, instance, runs))
    for group in _groups(ladder, same_as_before):
        members = _of_one_setting(group[0], _members(group, instance, runs), notes)
        counted = _scored(group[0], members, metric, notes)
        one = Selected(
            of=group[0],
            runs=tuple(members),
            counted=tuple(counted),
            scores=tuple((run.result or {})[metric] for run in counted),
            parameters=_parameters(group[0], members, notes),
        )
        found |= dict.fromkeys(group, one)
    _refuse_unequal_data([one.counted for one in found.values()])
    return {rung.name: found[rung.name] for rung in ladder.rungs}


def _groups(ladder: catalog.Ladder, same_as_before: Collection[str]) -> list[list[str]]:
    """The names of the rungs, those that share their runs together, the one that they share them with first."""
    groups: dict[str, list[str]] = {}
    for name, on in ladder.bases.items():
        group = groups[on] if on is not None and name in same_as_before else []
        group.append(name)
        groups[name] = group
    return [group for name, group in groups.items() if group[0] == name]


def _members(group: Collection[str], instance: str, runs: Sequence[values.Run]) -> list[values.Run]:
    """The final runs of these rungs, once each, in order of their seeds."""
    wanted = {
        run.id: run
        for run in runs
        if not run.superseded
        and run.excluded is None
        and any(
            place.ladder_key == instance and place.stage == "train" and place.rung in group for place in run.memberships
        )
    }
    return sorted(wanted.values(), key=lambda run: (run.seed, run.id))


def _excluded(ladder: catalog.Ladder, instance: str, runs: Sequence[values.Run]) -> list[str]:
    """A sentence on the runs that people have excluded, with their reasons; none where there are none."""
    names = {rung.name for rung in ladder.rungs}
    whys = [
        f"{run.id} ({run.excluded})"
        for run in sorted(runs, key=lambda run: (run.seed, run.id))
        if run.excluded is not None
        and not run.superseded
        and any(p.ladder_key == instance and p.stage == "train" and p.rung in names for p in run.memberships)
    ]
    count = f"{len(whys)} run{'s' if len(whys) > 1 else ''}"
    return [f"left out by hand: {count}: {'; '.join(whys)}"] if whys else []


def _of_one_setting(rung: str, runs: list[values.Run], notes: list[str]) -> list[values.Run]:
    """The runs of the newest settings: an edited recipe leaves runs of the old ones in the same instance."""
    groups: list[tuple[dict[str, Any], list[values.Run]]] = []
    for run in runs:
        settings = _settings(run.config)
        for known, group in groups:
            if known == settings:
                group.append(run)
                break
        else:
            groups.append((settings, [run]))
    if len(groups) < 2:
        return runs
    groups.sort(key=lambda group: max(run.created_at for run in group[1]))
    left_out = ", ".join(sorted(run.id for _, group in groups[:-1] for run in group))
    notes.append(f"{rung}: left out, being of earlier settings: {left_out}")
    return groups[-1][1]


def _settings(run: Mapping[str, Any]) -> dict[str, Any]:
    """What the seeds of a rung have in common. A run of an earlier version lacks the fields that came later."""
    try:
        return shared_settings(run)
    except msgspec.ValidationError:
        return {name: value for name, value in run.items() if name != "seed"}


def _scored(rung: str, runs: Sequence[values.Run], metric: str, notes: list[str]) -> list[values.Run]:
    """The finished runs that have a finite score; one without is named in the foot, not passed over."""
    scored = []
    for run in runs:
        if run.state != "done":
            continue
        score = (run.result or {}).get(metric)
        if score is None or not math.isfinite(score):
            notes.append(f"{rung}: run {run.id} is done without a finite {metric} and is not counted")
        else:
            scored.append(run)
    return scored


def _refuse_unequal_data(rows: Collection[Sequence[values.Run]]) -> None:
    by_hash: dict[str, set[str]] = {}
    for run in (run for row in rows for run in row):
        by_hash.setdefault(run.data_sha256 or "not recorded", set()).add(run.id)
    if len(by_hash) > 1:
        sides = "; ".join(f"{digest[:19]}: {', '.join(sorted(ids))}" for digest, ids in sorted(by_hash.items()))
        raise LrurunError(
            f"these runs were trained on unequal data and are never averaged or compared: {sides}",
            hint="`lrurun data check` says which of them is the data on disk; train the others again with --fresh",
        )


def _parameters(rung: str, runs: Sequence[values.Run], notes: list[str]) -> int | None:
    counts = sorted({run.parameters for run in runs if run.parameters is not None})
    if len(counts) > 1:
        notes.append(f"{rung}: its runs disagree on the number of parameters ({', '.join(map(str, counts))})")
        return None
    return counts[0] if counts else None


def _speed(runs: Sequence[values.Run]) -> float | None:
    speeds = [speed for run in runs if (speed := (run.result or {}).get(SPEED)) is not None and math.isfinite(speed)]
    return statistics.median(speeds)
