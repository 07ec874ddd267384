"""Sentences on what runs were carried out with: versions, devices, hours, interruptions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from lrurun.errors import plural
from lrurun.ledger.values import Attempt, Outcome, Run
from lrurun.report import devices
from lrurun.report.methods.evidence import Evidence
from lrurun.report.methods.wording import Sentence, capital, count, decimal, listed, times
from lrurun.version import VERSION


def sentences(evidence: Evidence) -> Iterator[Sentence]:
    kind = evidence.loaded.plan.kind
    if kind == "imported":
        yield from _imported(evidence)
        return
    yield from _versions(evidence)
    yield _devices(evidence)
    yield from _hours(evidence)
    yield from _interruptions(evidence)


def _versions(evidence: Evidence) -> Iterator[Sentence]:
    of_models = evidence.loaded.plan.is_of_models
    codes = evidence.environments(_code)
    packages = evidence.environments(_packages if of_models else _python)
    facts: dict[str, Any] = {
        "code": [{"text": text, "runs": runs} for text, runs in codes.items()],
        "versions": [{"text": text, "runs": runs} for text, runs in packages.items()],
        "analysed_with": VERSION,
    }
    verb = "trained" if of_models else "started"
    known = [text for text in codes if text]
    if known:
        text = f"Runs were {verb} with {_shares(codes)}"
        text += f", on {_shares(packages)}" if any(packages) else "; the versions of its libraries are not recorded"
    else:
        text = f"The versions of the software that {verb} the runs and of its libraries are not recorded"
    if not of_models:
        text += (
            "; nor are the packages that the program used"
            if not known
            else ("; the packages that the program used are not recorded")
        )
    yield Sentence(about="versions", text=f"{text}. They were analysed with lrurun {VERSION}.", facts=facts)


def _shares(counts: Mapping[str | None, int], unknown: str = "a version that is not recorded") -> str:
    """Values with the numbers of runs that have them, if there are several."""
    if len(counts) == 1:
        return next(iter(counts)) or unknown
    return listed(f"{text or unknown} ({plural(runs, 'run')})" for text, runs in counts.items())


def _table(attempt: Attempt, name: str) -> Mapping[str, Any]:
    table = attempt.environment.get(name)
    return table if isinstance(table, Mapping) else {}


def _code(attempt: Attempt) -> str | None:
    code = _table(attempt, "code")
    if "lrurun" not in code:
        return None
    commit = f", commit {str(code['commit'])[:12]}" if code.get("commit") else ""
    dirty = " with uncommitted changes" if code.get("dirty") else ""
    return f"lrurun {code['lrurun']}{commit}{dirty}"


def _packages(attempt: Attempt) -> str | None:
    versions = _table(attempt, "versions")
    names = {"python": "Python", "jax": "JAX"}
    parts = [f"{label} {versions[name]}" for name, label in names.items() if name in versions]
    return " and ".join(parts) or None


def _python(attempt: Attempt) -> str | None:
    return f"Python {version}" if (version := _table(attempt, "versions").get("python")) else None


def _devices(evidence: Evidence) -> Sentence:
    kinds = evidence.environments(_device)
    facts = {"devices": [{"text": text, "runs": runs} for text, runs in kinds.items()]}
    if not any(kinds):
        return Sentence(about="devices", text="The devices are not recorded.", facts=facts)
    text = f"They ran on {_shares(kinds, 'a device that is not recorded')}"
    threads = evidence.environments(lambda attempt: attempt.environment.get("threads"))
    if list(threads) != [None] and len(threads) == 1:
        number = next(iter(threads))
        text += f", with {count(number, 'thread')} a run"
        facts["threads"] = number
    return Sentence(about="devices", text=f"{text}.", facts=facts)


def _device(attempt: Attempt) -> str | None:
    """The device and the CPU, for example "an NVIDIA H200 (host CPU: AMD EPYC)" and "a CPU (AMD EPYC)"."""
    device, cpu = devices.name(attempt), _table(attempt, "machine").get("cpu")
    if not device:
        return None
    if device in ("cpu", cpu):
        return f"a CPU ({cpu})" if cpu else "a CPU of a type that is not recorded"
    return f"{device} (host CPU: {cpu})" if cpu else device


def _seconds(attempt: Attempt) -> float:
    """How long an attempt took: to its end, or to the last sign of it."""
    return (attempt.seen_at if attempt.ended_at is None else attempt.ended_at) - attempt.started_at


def _hours(evidence: Evidence) -> Iterator[Sentence]:
    def spent(runs: Iterable[Run]) -> float:
        return sum(_seconds(attempt) for run in runs for attempt in evidence.attempts.get(run.id, ()))

    counted = {run.id for run in evidence.results}
    tuning = [run for run in evidence.members if evidence.rungs_of(run, "tune")]
    others = [run for run in evidence.members if run.id not in counted and run not in tuning]
    parts = {"comparison": spent(evidence.results), "tuning": spent(tuning), "others": spent(others)}
    total = sum(parts.values())
    text = f"The runs took {_duration(total)} of wall time in all, added up over runs"
    inside = []
    if parts["tuning"] >= 60:
        inside.append(f"{_duration(parts['tuning'])} of these for the choice of settings")
    if parts["others"] >= 60:
        inside.append(f"{_duration(parts['others'])} for runs that do not count")
    text += f" ({listed(inside)})" if inside else ""
    facts = {"hours": total / 3600, **{f"hours_{name}": seconds / 3600 for name, seconds in parts.items()}}
    yield Sentence(about="hours", text=f"{text}.", facts=facts)


def _duration(seconds: float) -> str:
    """A duration with two significant digits, for example "3.4 hours", "12 minutes" and "less than a minute"."""
    if seconds < 60:
        return "less than a minute"
    unit, size = ("hour", 3600) if seconds >= 5400 else ("minute", 60)
    number = decimal(float(f"{seconds / size:.2g}")) if seconds / size < 100 else f"{seconds / size:,.0f}"
    return f"{number}\xa0{unit if number == '1' else unit + 's'}"


_INTERRUPTED: tuple[Outcome | None, ...] = ("interrupted", None)
_BROKEN: tuple[Outcome, ...] = ("failed", "exited", "rejected")
"""Ends of attempts by an error, or without a word; others that are followed by an attempt are interruptions."""


def _interruptions(evidence: Evidence) -> Iterator[Sentence]:
    """A sentence on runs that were interrupted, and one on runs that were tried again after they broke off."""
    for about, verbs, later, outcomes in (
        ("interruptions", ("was interrupted", "were interrupted"), ("finished later",) * 2, _INTERRUPTED),
        ("retries", ("broke off",) * 2, ("was tried again", "were tried again"), _BROKEN),
    ):
        ends = {run.id: _resumptions(evidence, run.id, outcomes) for run in evidence.results}
        ends = {run: resumptions for run, resumptions in ends.items() if resumptions}
        if not ends:
            continue
        many, resumed, are = sum(map(len, ends.values())), sum(map(sum, ends.values())), len(ends) > 1
        text = f"{capital(count(len(ends), 'run'))} {verbs[are]}, {times(many)}{' in all' * are}, and {later[are]}"
        if resumed == many:
            text += " from a checkpoint" if many == 1 else " from checkpoints"
        elif not resumed:
            text += ", from the beginning"
        else:
            text += f", {times(resumed)} from a checkpoint and {times(many - resumed)} from the beginning"
        yield Sentence(about=about, text=f"{text}.", facts={"runs": len(ends), about: many, "resumed": resumed})


def _resumptions(evidence: Evidence, run: str, outcomes: Collection[Outcome | None]) -> list[bool]:
    """For each attempt that ended so and was followed by another one, whether that began at a checkpoint."""
    attempts = evidence.attempts.get(run, ())
    return [bool(after.resumed_from) for before, after in pairwise(attempts) if before.outcome in outcomes]


def _imported(evidence: Evidence) -> Iterator[Sentence]:
    """What records of other software say about how long runs took."""
    spans = [span for run in evidence.results if (span := _span(evidence, run)) is not None]
    text = "Versions and devices of these runs are not recorded here"
    facts = {"runs_with_times": len(spans), "hours": sum(spans) / 3600 if spans else None, "analysed_with": VERSION}
    if len(spans) == len(evidence.results) and spans:
        text += f"; by their records, they took {_duration(sum(spans))} of wall time in all, added up over runs"
    elif spans:
        text += f"; the {count(len(spans), 'run')} with recorded times took {_duration(sum(spans))} of wall time in all"
    else:
        text += ", nor how long they took"
    yield Sentence(about="machines", text=f"{text}. They were analysed with lrurun {VERSION}.", facts=facts)


def _span(evidence: Evidence, run: Run) -> float | None:
    for attempt in reversed(evidence.attempts.get(run.id, ())):
        times = attempt.environment.get("times")
        if isinstance(times, list) and len(times) == 2 and all(isinstance(time, int | float) for time in times):
            return max(0.0, float(times[1]) - float(times[0]))
    return None
