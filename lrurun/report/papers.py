"""Every table, figure and checkable sentence of the papers: the command that makes it, and the result in a ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from lrurun import decoding
from lrurun.config import planning
from lrurun.errors import plural
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.judging.verdicts import NOT_RUN, OPEN
from lrurun.report.formats import markdown
from lrurun.report.tables import content
from lrurun.report.tables.ledger_claims import Evidence, PaperEntry
from lrurun.table import Column, Table

HEADERS = ("place", "what it shows", "made by", "at the paper's size", "status", "result here")
SENTENCE_HEADERS = ("place", "what it says", "checked by", "status", "result here")
SIZE_HEADERS = ("place", "model", "configured by", "published", "here", "difference")
AT_SCALE, REDUCED, CONFIGURED, NOT_POSSIBLE = "run at the paper's scale", "run reduced", "configured", "not possible"
PRINTED = "shown by the command"
TOLERANCE = 0.045
"""The largest difference of a number of parameters from the published one that counts as none [ours]: half of the last
digit of 1.1 or 1.2 million."""
NOTHING = "–"
_EXHIBITS = re.compile(r"\b(Table|Fig)(?:s|ures?)?\.? ((?:\d+[A-Za-z]?(?:, | and | to )?(?:Figs?\. )?)+)")


class Exhibit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table or figure. Without studies, commands and `prints`, nothing here makes it, as the note says."""

    at: str
    """Where it is in the paper, for example "Table 1"."""
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


class Sentence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence that runs or computations can check. Without claims, studies and commands, the note says why not."""

    at: str
    """The section."""
    says: str
    claims: tuple[str, ...] = ()
    """Texts of claims of ladders."""
    studies: tuple[str, ...] = ()
    """The tasks of its studies."""
    commands: tuple[str, ...] = ()
    """Commands whose output shows it, where no claim does; or commands of claims that the paper states of no task."""
    note: str = ""


class Size(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published number of parameters of a network, or of a ratio of two such numbers."""

    at: str
    model: str
    """The name of the model in the paper, with what tells it from others of that name."""
    published: float
    """The number; with `than`, how many times as many parameters that rung has."""
    than: str = ""
    ladder: str = ""
    """Empty where no rung is this model."""
    rung: str = ""
    task: str = ""
    profile: str | None = None
    set: dict[str, Any] = {}
    """Values of `--set`, by their dotted paths."""
    note: str = ""
    """Why the number is not met here."""

    @property
    def command(self) -> str:
        """The command that prints the parameters; empty where no rung is this model."""
        options = [f"--profile {self.profile}"] * (self.profile is not None)
        options += [f"--set {path}={value}" for path, value in self.set.items()]
        return " ".join(["lrurun -v plan", self.task, f"--ladder {self.ladder}", *options]) if self.ladder else ""


class Paper(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paper, with all its tables and figures, and then its sentences, in the order of its pages."""

    name: str
    """The beginning of sources of claims."""
    title: str
    exhibit: tuple[Exhibit, ...]
    sentence: tuple[Sentence, ...]
    size: tuple[Size, ...] = ()

    @property
    def tasks(self) -> set[str]:
        """The tasks of its tables and figures."""
        return {task for exhibit in self.exhibit for task in exhibit.tasks}


@cache
def every() -> tuple[Paper, ...]:
    """The papers."""
    file = Path(__file__).with_suffix(".toml")
    return decoding.convert(decoding.load_toml(file)["paper"], tuple[Paper, ...], file.name)


def render(evidence: Evidence, claims: Sequence[JudgedClaim], only: str | None = None) -> str:
    """The page as Markdown: a table for each paper, then the scores behind it.

    Args:
        only: the name of one paper; None for all.
    """
    papers = [paper for paper in every() if only in (None, paper.name)]
    lines: list[str] = []
    for paper in papers:
        lines += [f"### {paper.name}: {paper.title}", "", *_table(HEADERS)]
        lines += [markdown.row(_cells(paper, exhibit, evidence, claims)) for exhibit in paper.exhibit]
        lines += ["", *_table(SENTENCE_HEADERS)]
        lines += [markdown.row(_sentence_cells(paper, sentence, evidence, claims)) for sentence in paper.sentence]
        lines.append("")
    shown = {ladder for paper in papers for exhibit in paper.exhibit for ladder in exhibit.ladders}
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


def exhibits_in(source: str) -> set[str]:
    """The tables and figures that the source of a claim names, as in "Table 2"; parts of figures are left out."""
    exhibits = set()
    for kind, numbers in _EXHIBITS.findall(source):
        for first, last in re.findall(r"(\d+)[A-Za-z]?(?: to (\d+))?", numbers):
            name = "Figure" if kind == "Fig" else kind
            exhibits |= {f"{name} {number}" for number in range(int(first), int(last or first) + 1)}
    return exhibits


def statuses(paper: Paper, evidence: Evidence, claims: Sequence[JudgedClaim]) -> list[PaperEntry]:
    """The tables, figures and sentences of a paper, with what became of each."""
    exhibits = [
        PaperEntry(
            place=exhibit.at,
            what=exhibit.shows,
            commands=tuple(_commands(exhibit, evidence)),
            status=_status_of_exhibit(paper, exhibit, evidence, claims),
            note=exhibit.note,
        )
        for exhibit in paper.exhibit
    ]
    sentences = [
        PaperEntry(
            place=sentence.at,
            what=sentence.says,
            commands=tuple(_checks(sentence, evidence, claims)),
            status=_status_of_sentence(paper, sentence, evidence, claims),
            note=sentence.note,
        )
        for sentence in paper.sentence
    ]
    return exhibits + sentences


def content_of(paper: Paper, exhibits: Sequence[PaperEntry]) -> content.ReportContent:
    """The statuses as a table."""

    def column(name: str, cell: Callable[[PaperEntry], str], **more: Any) -> Column:
        return Column(name=name, cell=cell, right=False, **more)

    return content.ReportContent(
        title=f"tables, figures and sentences of {paper.name}",
        table=Table(
            columns=(
                column("place", lambda row: row.place, cut=30),
                column("status", lambda row: row.status, cut=30),
                column("what", lambda row: row.what, cut=36),
            ),
            rows=tuple(exhibits),
        ),
        foot=("Commands and reasons: --json, or --page FILE.",),
    )


def _commands(exhibit: Exhibit, evidence: Evidence) -> list[str]:
    studies = [evidence.by_task[task].command for task in exhibit.studies]
    return [*studies, *exhibit.commands, *([exhibit.prints] * bool(exhibit.prints))]


def _checks(sentence: Sentence, evidence: Evidence, claims: Sequence[JudgedClaim]) -> list[str]:
    """The commands that check a sentence, with TASK for the tasks of its claims."""
    about = [claim for claim in claims if not claim.is_of_study and claim.text in sentence.claims]
    ladders = dict.fromkeys(claim.ladder for claim in about)
    of_ladders = ["lrurun ladder TASK" + f" --ladder {ladder}" * (ladder != "lru") for ladder in ladders]
    of_studies = [evidence.by_task[task].command for task in sentence.studies]
    return list(dict.fromkeys([*of_studies, *of_ladders, *sentence.commands]))


def _about(paper: Paper, claims: Sequence[JudgedClaim], sentence: Sentence) -> list[JudgedClaim]:
    return [
        claim
        for claim in claims
        if not claim.is_of_study and claim.text in sentence.claims and claim.source.startswith(paper.name)
    ]


def _status_of_exhibit(paper: Paper, exhibit: Exhibit, evidence: Evidence, claims: Sequence[JudgedClaim]) -> str:
    if exhibit.same_as:
        return f"as {' and '.join(exhibit.same_as)}"
    if exhibit.prints:
        return PRINTED
    if not (exhibit.studies or exhibit.commands):
        return NOT_POSSIBLE
    about = [claim for claim in claims if claim.source.startswith(paper.name) and is_about(paper, exhibit, claim)]
    return _status(
        exhibit.studies,
        evidence,
        [claim for claim in about if not claim.is_of_study],
        with_ladders=bool(exhibit.ladders),
    )


def _status_of_sentence(paper: Paper, sentence: Sentence, evidence: Evidence, claims: Sequence[JudgedClaim]) -> str:
    if not (sentence.claims or sentence.studies or sentence.commands):
        return NOT_POSSIBLE
    if not (sentence.claims or sentence.studies):
        return PRINTED
    return _status(sentence.studies, evidence, _about(paper, claims, sentence), with_ladders=bool(sentence.claims))


def _status(
    studies: Sequence[str], evidence: Evidence, of_ladders: Sequence[JudgedClaim], *, with_ladders: bool
) -> str:
    """The status of studies and of claims of ladders together, each named where they differ."""
    parts = {evidence.by_task[task].name: _run_status(evidence.by_task[task].claims) for task in studies}
    if with_ladders:
        parts["ladders"] = _run_status(of_ladders)
    different = list(dict.fromkeys(parts.values()))
    return different[0] if len(different) == 1 else "; ".join(f"{name}: {status}" for name, status in parts.items())


def _run_status(claims: Sequence[JudgedClaim]) -> str:
    judged = [claim.ours for claim in claims if claim.ours.verdict not in OPEN]
    if not judged:
        return CONFIGURED
    return REDUCED if all(verdict.stand_in for verdict in judged) else AT_SCALE


def _sentence_cells(paper: Paper, sentence: Sentence, evidence: Evidence, claims: Sequence[JudgedClaim]) -> list[str]:
    about = _about(paper, claims, sentence)
    tasks = dict.fromkeys(claim.task for claim in about if claim.task in paper.tasks)
    checks = [*map(_code, _checks(sentence, evidence, claims)), *([f"TASK: {', '.join(tasks)}"] if tasks else [])]
    results = [f"{evidence.by_task[task].name}: as at its figure" for task in sentence.studies]
    notes = [sentence.note] if sentence.note else []
    result = "<br>".join(map(_text, [*results, *_verdicts_of(about), *notes])) or NOTHING
    status = _status_of_sentence(paper, sentence, evidence, claims)
    return [sentence.at, _text(sentence.says), "<br>".join(checks) or NOTHING, status, result]


def size_table(count: Callable[[Size], float | None]) -> list[list[str]]:
    """The published numbers of parameters beside those here, a row for each, under `SIZE_HEADERS`.

    Args:
        count: the number of parameters of the rung of a size, or its ratio to the number of `than`.
    """
    rows = []
    for paper in every():
        for size in paper.size:
            here = count(size)
            unit = f" times fewer than {size.than}" if size.than else ""
            difference = NOTHING if here is None else f"{100 * (here / size.published - 1):+.1f} %"
            rows.append(
                [
                    f"{paper.name}, {size.at}",
                    size.model,
                    f"`{size.command}`, rung `{size.rung}`" if size.command else NOTHING,
                    f"{size.published:,.0f}{unit}",
                    NOTHING if here is None else f"{here:,.1f}" if size.than else f"{here:,}",
                    "; ".join([difference, size.note] if size.note else [difference]),
                ]
            )
    return rows


def _cells(paper: Paper, exhibit: Exhibit, evidence: Evidence, claims: Sequence[JudgedClaim]) -> list[str]:
    commands = _commands(exhibit, evidence)
    tasks = [f"TASK: {', '.join(exhibit.tasks)}"] if any(" TASK" in command for command in exhibit.commands) else []
    made_by = [*map(_code, commands), *map(markdown.escape, tasks)]
    about = [claim for claim in claims if claim.source.startswith(paper.name) and is_about(paper, exhibit, claim)]
    if exhibit.same_as:
        result = [f"as {' and '.join(exhibit.same_as)}"]
    elif exhibit.studies or exhibit.tasks:
        result = [*(evidence.by_task[task].result for task in exhibit.studies), *_verdicts(exhibit, about)] or [NOT_RUN]
    else:
        result = [NOTHING]
    size = [*_stand_ins(exhibit, evidence), *_size(exhibit), *([exhibit.note] if exhibit.note else [])]
    result_text, size_text = ("<br>".join(map(_text, text)) for text in (result, size or [NOTHING]))
    status = _status_of_exhibit(paper, exhibit, evidence, claims)
    return [exhibit.at, _text(exhibit.shows), "<br>".join(made_by) or NOTHING, size_text, status, result_text]


def is_about(paper: Paper, exhibit: Exhibit, claim: JudgedClaim) -> bool:
    """Whether a table or figure shows a claim: one that names it and is about its ladders, tasks or studies.

    Tasks that the paper does not have are of stand-ins, which are shown if they are judged: a claim on very long
    sequences is not, on short ones. A claim about a study that names none is shown at the figure of the study.
    """
    named = exhibits_in(claim.source)
    if claim.is_of_study:
        return claim.task in exhibit.studies and (exhibit.at in named or not named)
    is_shown = claim.task in exhibit.tasks or (claim.task not in paper.tasks and claim.ours.verdict not in OPEN)
    return exhibit.at in named and claim.ladder in exhibit.ladders and is_shown


def _verdicts(exhibit: Exhibit, claims: Iterable[JudgedClaim]) -> list[str]:
    return _verdicts_of(claims, exhibit.studies)


def _verdicts_of(claims: Iterable[JudgedClaim], studies: Sequence[str] = ()) -> list[str]:
    """A sentence for each claim: its verdicts, with cautions, and on which tasks; one for all that were not run."""
    by_text: dict[str, dict[str, list[str]]] = {}
    for claim in claims:
        task = [] if claim.task in studies else [claim.task]
        by_text.setdefault(claim.text, {}).setdefault(f"{claim.shown}{claim.mark}", []).extend(task)
    sentences = []
    for text, verdicts in by_text.items():
        if set(verdicts) != {NOT_RUN}:
            parts = [f"{verdict} on {', '.join(tasks)}" if tasks else verdict for verdict, tasks in verdicts.items()]
            sentences.append(f"“{text}”: {'; '.join(parts)}")
    rest = len(by_text) - len(sentences)
    return sentences + ([f"{plural(rest, 'claim')}{' more' if sentences else ''}: {NOT_RUN}"] if rest else [])


def _stand_ins(exhibit: Exhibit, evidence: Evidence) -> list[str]:
    """The data and scales that the profile laptop of its studies replaces."""
    studies = [evidence.by_task[task] for task in exhibit.studies]
    return [f"{study.name}: {study.stand_in}" if len(studies) > 1 else study.stand_in for study in studies]


def _size(exhibit: Exhibit) -> list[str]:
    """The size of its ladders' runs, in numbers of the recipes."""
    if not exhibit.trained:
        return []
    steps, batches, lengths = map(_range, zip(*(_planned(*instance) for instance in exhibit.trained), strict=True))
    where = "needs an accelerator" if exhibit.accelerator else "possible on a laptop"
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
