"""The remarks on a report: one list, made once, from which every format takes what it shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct, structs

from lrurun.errors import plural
from lrurun.judging.rung_runs import Note

Topic = Literal[
    "smoke",
    "removed",
    "untuned",
    "unchanged",
    "provisional",
    "edge",
    "improving",
    "opposite",
    "test-selected",
    "items",
    "untested",
    "uncounted",
    "code",
    "numerics",
    "design",
    "import",
]
"""What a caution is about, in the order in which cautions are shown."""
_TOPICS: tuple[Topic, ...] = get_args(Topic)


class Caution(Struct, frozen=True, kw_only=True):
    """The short text of a remark that changes the reading of an answer."""

    what: str
    where: str = ""
    """The rungs that it is about, as in "all but tanh-rnn"."""
    advice: str = ""
    runs: int | None = None
    """How many runs it is about, if it is about single ones."""

    @property
    def text(self) -> str:
        """The caution as it is printed, for example "2 runs diverged (tanh-rnn)"."""
        runs = "" if self.runs is None else f"{plural(self.runs, 'run')} "
        where, advice = self.where and f" ({self.where})", self.advice and f": {self.advice}"
        return f"{runs}{self.what}{where}{advice}"


class Remark(Struct, frozen=True, kw_only=True):
    """A remark on the numbers of a report: in full, in a few words, or both."""

    full: str = ""
    """Sentences for the details of a report; empty if the caution says all."""
    is_conclusion: bool = False
    """Whether the full text is one of the conclusions, with which the details begin, and no note below the table."""
    is_covered: bool = False
    """Whether the full text says no more than cautions do: where these are shown, it is not."""
    caution: Caution | None = None
    """The short text, of a remark that changes the reading of the answer."""
    topic: Topic | None = None
    """What the caution is about."""
    brief: str = ""
    """The short text of another remark, as a sentence below the answer."""


def conclusion(text: str | Remark) -> Remark:
    """A conclusion as a remark."""
    return text if isinstance(text, Remark) else Remark(full=text, is_conclusion=True)


def sentences(texts: Iterable[str]) -> list[Remark]:
    """Sentences below a table as remarks."""
    return [Remark(full=text) for text in texts]


def of_notes(notes: Iterable[Note]) -> list[Remark]:
    """The notes of a report as remarks, of which only the details name the runs."""
    return [Remark(full=f"Note: {note}", brief=f"Note: {note.text}") for note in notes]


def edges_text(at_edge: Mapping[str, Sequence[str]]) -> str:
    """The settings whose best value is at the edge, each with its rungs, as in "optim.lr (gamma-norm)"."""
    by_paths: dict[str, list[str]] = {}
    for rung, settings in at_edge.items():
        by_paths.setdefault(", ".join(settings), []).append(rung)
    return "; ".join(f"{settings} ({', '.join(rungs)})" for settings, rungs in by_paths.items())


def merged(remarks: Iterable[Remark], cautions: Sequence[Remark]) -> tuple[Remark, ...]:
    """One list of both. A caution becomes the short text of the first remark on its topic."""
    left = list(cautions)
    both = []
    for remark in remarks:
        short = next((short for short in left if short.topic == remark.topic is not None), None)
        if short is not None:
            left.remove(short)
            remark = structs.replace(remark, caution=short.caution)
        both.append(remark)
    return (*both, *left)


def cautions_of(remarks: Iterable[Remark]) -> list[Caution]:
    """The cautions in the order of their topics."""

    def order(remark: Remark) -> int:
        return -1 if remark.topic is None else _TOPICS.index(remark.topic)

    return [remark.caution for remark in sorted(remarks, key=order) if remark.caution is not None]
