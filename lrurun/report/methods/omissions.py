"""Sentences on runs that diverged, failed, or do not count: excluded, superseded, of other settings, forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lrurun.console import clean
from lrurun.ledger.values import RemovedRun, Run
from lrurun.report.methods.evidence import Evidence
from lrurun.report.methods.wording import Sentence, capital, count, grouped, has_been, listed, word


def sentences(evidence: Evidence) -> Iterator[Sentence]:
    yield _total(evidence)
    yield from _without_score(evidence)
    yield from _unfinished(evidence)
    yield from _excluded(evidence)
    yield from _not_counted(evidence)
    yield from _removed(evidence)


def _total(evidence: Evidence) -> Sentence:
    finished = [run for run in evidence.results if run.state == "done"]
    diverged = [run for run in evidence.results if run.state == "diverged"]
    text = f"In all, {count(len(evidence.results), 'run')} entered the comparison"
    if diverged:
        text += (
            f", of which {word(len(finished))} finished and {word(len(diverged))} diverged, with a loss that was not "
        )
        text += f"finite ({_where(evidence, diverged)})"
        if not evidence.loaded.plan.is_of_models:
            text = text.replace(", with a loss that was not finite", "")
    else:
        text += "; none of them diverged"
    facts = {
        "runs": len(evidence.results),
        "finished": len(finished),
        "diverged": {rung: len(runs) for rung, runs in evidence.by_rung(diverged).items()},
    }
    return Sentence(about="runs", text=f"{text}.", facts=facts)


def _where(evidence: Evidence, runs: Iterable[Run]) -> str:
    by_rung = evidence.by_rung(runs)
    if len(by_rung) == 1:
        return f"of {next(iter(by_rung))}"
    return listed(f"{word(len(members))} of {rung}" for rung, members in by_rung.items())


def _without_score(evidence: Evidence) -> Iterator[Sentence]:
    """How runs without a usable score were counted."""
    report = evidence.report
    unscored = {row.rung: row.unscored for row in report.rows if row.unscored and not row.same_as_before}
    diverged = any(run.state == "diverged" for run in evidence.results)
    if unscored:
        many = sum(unscored.values())
        text = f"{capital(count(many, 'finished run'))} had no usable score "
        text += f"({listed(f'{word(number)} of {rung}' for rung, number in unscored.items())})."
        yield Sentence(about="unscored", text=text, facts={"unscored": unscored})
    if not unscored and not diverged:
        return
    what = "Diverged runs" if not unscored else "Diverged runs and those without a score" if diverged else "These runs"
    chance = report.chance
    means = "and counted in no mean"
    if chance is not None:
        score = report.score.with_symbol(report.score.full(chance)).replace(" ", "\xa0")
        means = f"and counted in differences of means with the score of chance, {score}"
    text = f"{what} ranked below all others {means}."
    yield Sentence(about="failures", text=text, facts={"chance": chance})


def _unfinished(evidence: Evidence) -> Iterator[Sentence]:
    waiting = [run for run in evidence.final if run.state in ("queued", "running", "interrupted")]
    failed = [run for run in evidence.final if run.state == "failed" and run.excluded is None]
    waiting = [run for run in waiting if run.excluded is None]
    imported = evidence.loaded.plan.kind == "imported"
    if failed:
        text = f"{capital(count(len(failed), 'run'))} failed and had no result ({_where(evidence, failed)})."
        yield Sentence(about="failed", text=text, facts=_facts(evidence, "failed", failed))
    if waiting:
        verb = "had no result in the records" if imported else "had not finished when this was written"
        text = f"{capital(count(len(waiting), 'run'))} {verb} ({_where(evidence, waiting)})."
        yield Sentence(about="unfinished", text=text, facts=_facts(evidence, "unfinished", waiting))


def _facts(evidence: Evidence, name: str, runs: Iterable[Run]) -> dict[str, object]:
    return {name: {rung: len(members) for rung, members in evidence.by_rung(runs).items()}}


def _excluded(evidence: Evidence) -> Iterator[Sentence]:
    excluded = [run for run in evidence.final if run.excluded is not None]
    if not excluded:
        return
    facts = {"excluded": [{"run": run.id, "seed": run.seed, "why": run.excluded} for run in excluded]}
    whys = grouped({run.id: run.excluded for run in excluded})
    by_id = {run.id: run for run in excluded}
    many = len(excluded)
    if len(whys) == 1:
        why = clean(excluded[0].excluded or "").rstrip(".")
        text = f"{capital(count(many, 'run'))} ({_where_seeds(evidence, excluded)}) {has_been(many)} excluded from all "
        text += f"numbers, for this reason: {why}."
        yield Sentence(about="excluded", text=text, facts=facts)
        return
    parts = []
    for why, ids in whys.items():
        where = _where_seeds(evidence, [by_id[run] for run in ids])
        parts.append(f"{word(len(ids))} ({where}) because: {clean(why or '').rstrip('.')}")
    text = f"{capital(count(many, 'run'))} {has_been(many)} excluded from all numbers: {'; '.join(parts)}."
    yield Sentence(about="excluded", text=text, facts=facts)


def _where_seeds(evidence: Evidence, runs: Iterable[Run]) -> str:
    return listed(
        f"{rung}, {'seed' if len(members) == 1 else 'seeds'} {listed(str(run.seed) for run in members)}"
        for rung, members in evidence.by_rung(runs).items()
    )


def _not_counted(evidence: Evidence) -> Iterator[Sentence]:
    final = [run for run in evidence.superseded if evidence.rungs_of(run)]
    tuning = [run for run in evidence.superseded if not evidence.rungs_of(run)]
    if evidence.superseded:
        many = len(evidence.superseded)
        text = (
            f"{capital(count(many, 'earlier run'))} {has_been(many)} superseded by later runs with the same settings "
        )
        text += f"and {'counts' if many == 1 else 'count'} nowhere."
        yield Sentence(
            about="superseded", text=text, facts={"superseded": len(final), "superseded_tuning": len(tuning)}
        )
    if evidence.outdated:
        many = len(evidence.outdated)
        whose = "its variant" if many == 1 else "their variants"
        text = f"{capital(count(many, 'run'))} with earlier settings of {whose} {has_been(many)} left out "
        text += f"({_where(evidence, evidence.outdated)})."
        yield Sentence(about="outdated", text=text, facts=_facts(evidence, "outdated", evidence.outdated))


def _removed(evidence: Evidence) -> Iterator[Sentence]:
    forgotten = [run for run in evidence.removed if run.kind == "forgotten"]
    left_out = [run for run in evidence.removed if run.kind == "left out"]
    if forgotten:
        yield _deleted("deleted", forgotten, "before this was written")
    if evidence.trained_again:
        yield _deleted("deleted and repeated", evidence.trained_again, "and then repeated")
    if left_out:
        many = len(left_out)
        text = (
            f"{capital(count(many, 'further run'))} of the comparison {'is' if many == 1 else 'are'} not part of the "
        )
        text += f"record that this was written from ({_of_rungs(left_out)})."
        yield Sentence(about="left out", text=text, facts={"left_out": _counts(left_out)})


def _deleted(about: str, runs: Sequence[RemovedRun], what: str) -> Sentence:
    whys = [clean(why) for why in dict.fromkeys(run.why for run in runs) if why]
    reason = f"; the {'reason' if len(whys) == 1 else 'reasons'} given: {'; '.join(whys).rstrip('.')}" if whys else ""
    many = len(runs)
    text = f"{capital(count(many, 'run'))} {has_been(many)} deleted with {'its' if many == 1 else 'their'} results "
    text += f"{what} ({_of_rungs(runs)}){reason}."
    return Sentence(about=about, text=text, facts={"deleted": _counts(runs), "why": whys})


def _counts(runs: Iterable[RemovedRun]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.rung] = counts.get(run.rung, 0) + 1
    return counts


def _of_rungs(runs: Iterable[RemovedRun]) -> str:
    return listed(f"{word(number)} of {rung}" for rung, number in _counts(runs).items())
