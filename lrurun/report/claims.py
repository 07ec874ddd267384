"""Claims of a paper, judged from finished runs: supported, contradicted, or undecided, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from lrurun import catalog
from lrurun.errors import UsageError
from lrurun.report import statistics

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"


class Side(Struct, frozen=True, kw_only=True):
    """What the ledger knows of a rung."""

    scores: tuple[float, ...]
    """Of the finished runs."""
    diverged: int
    runs: frozenset[str]
    """The ids behind both: two rungs of the same runs cannot be compared."""


class Verdict(Struct, frozen=True, kw_only=True):
    """A claim with what this ledger's runs say of it."""

    text: str
    source: str
    rung: str
    than: str
    kind: str
    verdict: str
    detail: str
    stand_in: bool
    """Whether the task is none of those on which the paper makes the claim."""


def judge(
    ladder: catalog.Ladder, sides: Mapping[str, Side], *, task: str, chance: float | None = None
) -> tuple[Verdict, ...]:
    """Every claim of `ladder` whose two rungs are among `sides`; `chance` is what a diverged run counts as."""
    return tuple(
        _judge(claim, sides[claim.rung], sides[claim.than], task=task, chance=chance)
        for claim in ladder.claims
        if claim.rung in sides and claim.than in sides
    )


def _judge(claim: catalog.Claim, rung: Side, than: Side, *, task: str, chance: float | None) -> Verdict:
    if claim.kind != "better" and claim.margin is None:
        relation = "equals" if claim.kind == "equal" else "is no worse than"
        raise UsageError(
            f"the claim {claim.text!r} says that {claim.rung} {relation} {claim.than}, but names no margin",
            hint="give the difference that does not count as one: margin = 0.005",
        )
    stand_in = bool(claim.tasks) and task not in claim.tasks
    verdict, said = _decide(claim, rung, than, chance)
    if stand_in:
        listing = ", ".join(claim.tasks)
        said.append(f"{task} is not among the tasks of this claim in the paper ({listing}): a stand-in")
    return Verdict(
        text=claim.text,
        source=claim.source,
        rung=claim.rung,
        than=claim.than,
        kind=claim.kind,
        verdict=verdict,
        detail="; ".join(said),
        stand_in=stand_in,
    )


def _decide(claim: catalog.Claim, rung: Side, than: Side, chance: float | None) -> tuple[str, list[str]]:
    if rung.runs and rung.runs == than.runs:
        return UNDECIDED, [f"{claim.rung} and {claim.than} are the same runs on this task"]
    said = [f"{_points(claim.rung, rung)}, {_points(claim.than, than)}"]
    verdict, why = _test(claim, rung.scores, than.scores)
    said += why
    if not rung.diverged and not than.diverged:
        return verdict, said
    if chance is None:
        return UNDECIDED, [*said, "runs diverged, and chance is not known on this task"]
    counted, _ = _test(claim, (*rung.scores, *[chance] * rung.diverged), (*than.scores, *[chance] * than.diverged))
    with_them = f"with the diverged runs counted as chance ({chance * 100:.2f}): {counted}"
    return (verdict if verdict == counted else UNDECIDED), [*said, with_them]


def _test(claim: catalog.Claim, scores: Sequence[float], than: Sequence[float]) -> tuple[str, list[str]]:
    """The verdict on these scores alone, and the words for it."""
    found = statistics.difference(scores, than)
    if found is None:
        return UNDECIDED, ["no test"]
    said = f"difference {found.estimate * 100:+.2f} points"
    interval = found.interval(0.9)
    if interval is None:
        fewest = min(len(scores), len(than))
        return UNDECIDED, [said, "n = 1: no test" if fewest < 2 else "no spread: no test"]
    low, high = interval
    said += f" [{low * 100:+.2f}, {high * 100:+.2f}], each end a one-sided 95 % bound"
    if claim.kind == "better":
        distance = abs(found.estimate)
        verdict = SUPPORTED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED
    else:
        margin = claim.margin or 0.0
        said += f"; margin {margin * 100:.2f}"
        if claim.kind == "no-worse":
            distance = abs(found.estimate + margin)
            inside, outside = low > -margin, high < -margin
        else:
            distance = abs(margin - abs(found.estimate))
            inside, outside = -margin < low and high < margin, high < -margin or low > margin
        verdict = SUPPORTED if inside else CONTRADICTED if outside else UNDECIDED
    if verdict != UNDECIDED:
        return verdict, [said]
    # The observed difference is taken for the true one: a guide to planning, no promise.
    spread = statistics.pooled_spread([scores, than])
    seeds = statistics.seeds_to_decide(distance, spread) if spread else None
    if seeds is None:
        hint = f"the difference is too small to decide with {statistics.MOST_SEEDS} seeds a side"
        if claim.kind != "better":
            hint = f"too close to the margin to decide with {statistics.MOST_SEEDS} seeds a side"
        return verdict, [said, hint]
    return verdict, [said, f"about {seeds} seeds a side would decide, were the true difference the one seen"]


def _points(name: str, side: Side) -> str:
    mean, stderr = statistics.mean(side.scores), statistics.stderr(side.scores)
    score = "no score" if mean is None else f"{mean * 100:.2f}"
    error = "" if stderr is None else f" ± {stderr * 100:.2f}"
    diverged = f", {side.diverged} diverged" if side.diverged else ""
    return f"{name} {score}{error} (n={len(side.scores)}{diverged})"
