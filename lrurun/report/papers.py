"""A page of every table and figure of the papers: the command that makes it here, and the result in a ledger."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from lrurun import decoding
from lrurun.config import plan as planning
from lrurun.errors import plural
from lrurun.report.formats import markdown
from lrurun.report.judging.verdicts import NOT_RUN
from lrurun.report.tables.ledger_claims import OPEN, Evidence, LedgerClaim

HEADERS = ("place", "what it shows", "made by", "result here", "at the paper's size")
NOTHING = "–"
_PLACES = re.compile(r"\b(Table|Fig)(?:s|ures?)?\.? ((?:\d+[A-Za-z]?(?:, | and | to )?(?:Figs?\. )?)+)")


class Place(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table or figure. Without studies, commands and `prints`, nothing here makes it, as the note says."""

    at: str
    """The place in the paper, for example "Table 1"."""
    shows: str
    studies: tuple[str, ...] = ()
    """The tasks of its studies, for example "study:memory"."""
    commands: tuple[str, ...] = ()
    """Commands, with TASK for each of the tasks."""
    tasks: tuple[str, ...] = ()
    prints: str = ""
    """The command that prints settings, which have no result."""
    same_as: tuple[str, ...] = ()
    """Places with these numbers: their result is the result of this one."""
    accelerator: bool = True
    """Whether its commands need one, at the paper's size."""
    note: str = ""

    @property
    def trained(self) -> list[tuple[str, str, str | None]]:
        """Ladder, task and profile of each instance that the commands train."""
        instances = []
        for words in (words for words in map(str.split, self.commands) if words[1] == "ladder"):
            options = dict(pairwise(words))
            tasks = self.tasks if words[2] == "TASK" else (words[2],)
            instances += [(options.get("--ladder", "lru"), task, options.get("--profile")) for task in tasks]
        return instances

    @property
    def ladders(self) -> set[str]:
        return {ladder for ladder, _, _ in self.trained}


class Paper(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paper, with all its tables and figures in the order of its pages."""

    name: str
    """The beginning of sources of claims."""
    title: str
    place: tuple[Place, ...]


@cache
def every() -> tuple[Paper, ...]:
    """The papers."""
    file = Path(__file__).with_suffix(".toml")
    return decoding.convert(decoding.load_toml(file)["paper"], tuple[Paper, ...], file.name)


def render(evidence: Evidence, claims: Sequence[LedgerClaim], only: str | None = None) -> str:
    """The page as Markdown: a table for each paper, then the scores behind it.

    Args:
        only: the name of one paper; None for all.
    """
    papers = [paper for paper in every() if only in (None, paper.name)]
    lines: list[str] = []
    for paper in papers:
        lines += [f"### {paper.name}: {paper.title}", "", *_table(HEADERS)]
        lines += [markdown.row(_cells(paper, place, evidence, claims)) for place in paper.place]
        lines.append("")
    shown = {ladder for paper in papers for place in paper.place for ladder in place.ladders}
    rows = [
        [_code(run.command), markdown.escape(run.scores)]
        for ladder, judging in evidence.ladders.items()
        if ladder in shown
        for instance in judging.values()
        for run in instance.runs
    ]
    if rows:
        lines += ["### Scores of the runs", "", *_table(("made by", "score")), *map(markdown.row, rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def places_in(source: str) -> set[str]:
    """The tables and figures that the source of a claim names, as in "Table 2"; parts of figures are left out."""
    places = set()
    for kind, numbers in _PLACES.findall(source):
        for first, last in re.findall(r"(\d+)[A-Za-z]?(?: to (\d+))?", numbers):
            name = "Figure" if kind == "Fig" else kind
            places |= {f"{name} {number}" for number in range(int(first), int(last or first) + 1)}
    return places


def _cells(paper: Paper, place: Place, evidence: Evidence, claims: Sequence[LedgerClaim]) -> list[str]:
    commands = [
        *(evidence.by_task[task].command for task in place.studies),
        *place.commands,
        *([place.prints] * bool(place.prints)),
    ]
    tasks = [f"TASK: {', '.join(place.tasks)}"] if any(" TASK" in command for command in place.commands) else []
    made_by = [*map(_code, commands), *map(markdown.escape, tasks)]
    about = [claim for claim in claims if claim.source.startswith(paper.name) and is_about(paper, place, claim)]
    if place.same_as:
        result = [f"as {' and '.join(place.same_as)}"]
    elif place.studies or place.tasks:
        result = [*(evidence.by_task[task].result for task in place.studies), *_verdicts(place, about)] or [NOT_RUN]
    else:
        result = [NOTHING]
    size = [*_stand_ins(place, evidence), *_size(place), *([place.note] if place.note else [])]
    columns = ["<br>".join(map(_text, text)) for text in (result, size or [NOTHING])]
    return [place.at, _text(place.shows), "<br>".join(made_by) or NOTHING, *columns]


def is_about(paper: Paper, place: Place, claim: LedgerClaim) -> bool:
    """Whether a claim of the paper is shown at this place: it names it, and is about its ladders, tasks or studies.

    Tasks that the paper does not have are of stand-ins, which are shown if they are judged: a claim on very long
    sequences is not, on short ones. A claim about a study that names no place is shown at that of the study.
    """
    named = places_in(claim.source)
    if not claim.rung:
        return claim.task in place.studies and (place.at in named or not named)
    stated = {task for any_place in paper.place for task in any_place.tasks}
    is_shown = claim.task in place.tasks or (claim.task not in stated and claim.here.verdict not in OPEN)
    return place.at in named and claim.ladder in place.ladders and is_shown


def _verdicts(place: Place, claims: Iterable[LedgerClaim]) -> list[str]:
    """A sentence for each claim: its verdicts, with cautions, and on which tasks; one for all that were not run."""
    by_text: dict[str, dict[str, list[str]]] = {}
    for claim in claims:
        task = [] if claim.task in place.studies else [claim.task]
        by_text.setdefault(claim.text, {}).setdefault(f"{claim.shown}{claim.mark}", []).extend(task)
    sentences = []
    for text, verdicts in by_text.items():
        if set(verdicts) != {NOT_RUN}:
            parts = [f"{verdict} on {', '.join(tasks)}" if tasks else verdict for verdict, tasks in verdicts.items()]
            sentences.append(f"“{text}”: {'; '.join(parts)}")
    rest = len(by_text) - len(sentences)
    return sentences + ([f"{plural(rest, 'claim')}{' more' if sentences else ''}: {NOT_RUN}"] if rest else [])


def _stand_ins(place: Place, evidence: Evidence) -> list[str]:
    """The data and scales that the profile laptop of its studies replaces."""
    studies = [evidence.by_task[task] for task in place.studies]
    return [f"{study.name}: {study.stand_in}" if len(studies) > 1 else study.stand_in for study in studies]


def _size(place: Place) -> list[str]:
    """The size of its ladders' runs, in numbers of the recipes."""
    if not place.trained:
        return []
    steps, batches, lengths = map(_range, zip(*(_planned(*instance) for instance in place.trained), strict=True))
    where = "needs an accelerator" if place.accelerator else "possible on a laptop"
    return [f"{where}: {steps} steps of {batches} sequences of {lengths} positions"]


@cache
def _planned(ladder: str, task: str, profile: str | None) -> tuple[int, int, int]:
    """Steps, batch and positions of the last rung."""
    plan = planning.make(task, ladder=ladder, profile=profile, imports=False)
    train = plan.rungs[-1].training.train
    return train.steps, train.batch, plan.task.spec(plan.options).length


def _range(values: Iterable[int]) -> str:
    numbers = sorted(set(values))
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def _table(headers: Sequence[str]) -> list[str]:
    return [markdown.row(headers), markdown.row(["---"] * len(headers))]


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def _text(text: str) -> str:
    """A text as Markdown; parts between backticks stay code."""
    parts = text.split("`")
    return "".join(_code(part) if k % 2 else markdown.escape(part) for k, part in enumerate(parts))
