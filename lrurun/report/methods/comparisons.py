"""Sentences on how the variants were compared: test, correction, level, number of comparisons, sequential design."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lrurun.judging import verdicts
from lrurun.judging.sequential import DesignSummary
from lrurun.judging.statistics import ALPHA
from lrurun.judging.verdicts import Comparison
from lrurun.report.methods.evidence import Evidence
from lrurun.report.methods.wording import Sentence, capital, count, decimal, has_been, listed, word
from lrurun.report.tables.ladder_table import BASE_NOT_RUN

_LEVEL = f"{decimal(100 * ALPHA)}\xa0%"


def sentences(evidence: Evidence) -> Iterator[Sentence]:
    report = evidence.report
    differences = [row.comparison for row in report.rows if row.comparison is not None and row.comparison.is_tested]
    claims = [claim for claim in report.claims if claim.is_tested]
    facts = {
        "differences": len(differences),
        "claims": len(claims),
        "hypotheses": report.hypotheses,
        "level": ALPHA,
        "provisional": sum(comparison.provisional for comparison in (*differences, *claims)),
    }
    if not differences and not claims:
        text = "No variants were compared by a test, for lack of results."
        yield Sentence(about="test", text=text, facts=facts)
        return
    yield Sentence(about="test", text=_test(evidence, differences, claims), facts=facts)
    yield from _provisional(evidence, [*differences, *claims], facts)
    if report.design is not None:
        yield _design(report.design)
    yield from _not_compared(evidence)
    yield from _later_seeds(evidence)
    yield from _items(evidence, [*differences, *claims])
    yield from _without_spread(evidence)


def _test(evidence: Evidence, differences: Sequence[Comparison], claims: Sequence[Comparison]) -> str:
    report = evidence.report
    shown = (*differences, *claims)
    bases = {comparison.rung: comparison.other for comparison in differences}
    names = list(evidence.loaded.ladder.bases)
    previous = {name: before for before, name in zip([None, *names], names, strict=False)}
    is_ladder = all(previous[rung] == base for rung, base in bases.items())
    which, other = ("each variant", "one") if len(differences) > 1 else (next(iter(bases), ""), "variant")
    against = f"the {other} before it" if is_ladder else f"the {other} that it changes"
    few = {comparison.provisional for comparison in shown}
    tests = {
        False: "the Brunner-Munzel rank test with its permutation distribution",
        True: "Welch's t-test of means",
    }
    if len(few) == 2:
        test = f"{tests[False]}, or by {tests[True]} where a side had fewer than {word(verdicts.LEAST_SEEDS)} seeds"
    else:
        test = tests[next(iter(few))]
    if report.design is None:
        correction = f"Holm's correction for {count(report.hypotheses, 'hypothesis')}"
    else:
        correction = "Holm's correction at each look"
    what = [f"the difference of {which} to {against}"] if differences else []
    what += [count(len(claims), "claim")] if claims else []
    # "the difference of each variant" is one thing to grammar, however many there are
    subject = ", and ".join(what) + ("," if len(what) > 1 else "")
    number = len(what) if differences else len(claims)
    subject = f"{capital(subject)} {has_been(number)} tested on test scores over seeds"
    sides = ", two-sided"
    if any(claim.kind != "better" for claim in claims):
        sides += " (claims of no difference, of no loss and about chance: one-sided, against their margins)"
    return f"{subject} by {test}{sides}, at a family-wise level of {_LEVEL} with {correction}."


def _not_compared(evidence: Evidence) -> Iterator[Sentence]:
    """The variants with results of which the base has none."""
    rows = {
        row.rung: row.on for row in evidence.report.rows if row.rung in evidence.rungs and row.verdict == BASE_NOT_RUN
    }
    if rows:
        why = (
            "as the variant that it changes has no results"
            if len(rows) == 1
            else ("as the variants that they change have no results")
        )
        text = f"For {listed(rows)}, no difference was tested, {why}."
        yield Sentence(about="not compared", text=text, facts={"not_compared": rows})


def _later_seeds(evidence: Evidence) -> Iterator[Sentence]:
    """Seeds that were added after results were known."""
    if texts := evidence.loaded.added_seeds():
        shown = "; ".join(texts).replace(" in a later command", " later")
        yield Sentence(about="later seeds", text=f"{capital(shown)}.", facts={"added": list(texts)})


def _provisional(evidence: Evidence, shown: Sequence[Comparison], facts: Mapping[str, object]) -> Iterator[Sentence]:
    provisional = [comparison for comparison in shown if comparison.provisional]
    if not provisional:
        return
    these = "These verdicts are" if len(provisional) == len(shown) else f"Verdicts on {_rungs(provisional)} are"
    text = f"{these} provisional: with fewer than {word(verdicts.LEAST_SEEDS)} seeds, they assume that no seed fails."
    yield Sentence(about="provisional", text=text, facts={"provisional": facts["provisional"]})


def _rungs(comparisons: Sequence[Comparison]) -> str:
    return listed(dict.fromkeys(comparison.rung for comparison in comparisons))


def _design(design: DesignSummary) -> Sentence:
    looks = listed(f"{look.seeds}" for look in design.looks)
    seeds = f"up to {design.max_seeds} seeds were added to variants with undecided comparisons"
    text = (
        "The number of seeds followed a group-sequential design that was fixed before the first look (Maurer and "
        f"Bretz 2013; Ye et al. 2013): {seeds}, with "
        f"{'a look' if len(design.looks) == 1 else 'looks'} at {looks} seeds, "
    )
    shares = {look.share for look in design.looks}
    if len(design.looks) == 1:
        text += "which spent the whole level"
    elif len(shares) == 1:
        text += f"each of which spent {decimal(100 * design.looks[0].share)}\xa0% of the level"
    else:
        text += f"which spent {listed(f'{decimal(100 * look.share)} %' for look in design.looks)} of the level"
    text += f". {capital(count(design.looks_done, 'look'))} {has_been(design.looks_done)} taken"
    open_ = f"{word(design.undecided)} of {count(design.questions, 'question')} remained undecided"
    text += f", and {open_}; intervals were not adjusted for stopping"
    if design.finished_before:
        many = count(design.finished_before, "run")
        text += f", and {many} had finished before the design was fixed"
    facts = {
        "max_seeds": design.max_seeds,
        "looks": [look.seeds for look in design.looks],
        "shares": [look.share for look in design.looks],
        "looks_taken": design.looks_done,
        "questions": design.questions,
        "undecided": design.undecided,
        "finished_before": design.finished_before,
    }
    return Sentence(about="design", text=f"{text}.", facts=facts)


_KNOWN = {
    "results": "per-item results on the {items} entered the error of each comparison, so that verdicts{where} hold for "
    "new seeds and new test items",
    "number": "the error from the choice of the {items} was bounded by their number, so that verdicts{where} hold for "
    "new seeds and new test items",
    "unknown": "verdicts{where} hold for new seeds on the same test items",
}


def _items(evidence: Evidence, shown: Sequence[Comparison]) -> Iterator[Sentence]:
    kinds: dict[str, list[Comparison]] = {}
    for comparison in shown:
        if comparison.items_known in _KNOWN:
            kinds.setdefault(comparison.items_known, []).append(comparison)
    number = evidence.report.test_items
    items = f"{number:,} test {'item' if number == 1 else 'items'}" if number else "test items"
    facts = {"test_items": number, "known": {kind: len(each) for kind, each in kinds.items()}}
    parts = [
        _KNOWN[kind].format(items=items, where=f" on {_rungs(each)}" if len(kinds) > 1 else "")
        for kind, each in kinds.items()
    ]
    if parts:
        yield Sentence(about="test items", text=f"{capital('; '.join(parts))}.", facts=facts)


def _without_spread(evidence: Evidence) -> Iterator[Sentence]:
    rungs = [rung for rung in evidence.report.without_spread if rung in evidence.rungs]
    if rungs:
        text = f"Where seeds showed no spread ({listed(rungs)}), the error of the test set was used in its place."
        yield Sentence(about="spread", text=text, facts={"without_spread": rungs})
