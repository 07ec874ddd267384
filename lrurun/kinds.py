"""Kinds of runs: what the rest of the program asks of runs that are not the training of a model.

Runs and instances record their kind. Each kind but "training" is one object of a package of its own, which is imported
when it is asked for: nothing else knows that package. The runs of a user's program are those of a ladder, like
trainings; studies have reports of their own, and tasks that begin with the kind, as in "study:memory".
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct

from lrurun.config.schema import LADDER_KINDS

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance, Run
    from lrurun.paths import Places

STUDY: Final = "study"
_KINDS = {STUDY: "lrurun.studies.kind:KIND", "program": "lrurun.programs.kind:KIND"}


def limited(threads: int) -> dict[str, str]:
    """Environment variables that limit the threads of libraries for linear algebra."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    return dict.fromkeys(names, str(threads))


class Page(Struct, frozen=True):
    """The contents of an instance's page in the browser view."""

    heading: str
    body: str
    """HTML."""


class TaskEvidence(Struct, frozen=True, kw_only=True):
    """The evidence of a ledger on a task, for the claims of papers."""

    name: str
    """The name of the task beside others of its kind."""
    command: str
    """The one that makes its runs."""
    result: str
    """The result in a sentence, with the command that made it; or that it was not run."""
    stand_in: str
    """The differences from the paper on a laptop."""
    claims: Sequence[Any]
    """Judged claims, as `lrurun claims` lists them."""


class Kind(ABC):
    """How runs of a kind are executed."""

    uses_jax: ClassVar[bool]
    """Whether its workers need the accelerators that jax can use; else, all that there are."""

    @abstractmethod
    def environment(self, threads: int) -> Mapping[str, str]:
        """Environment variables of the workers of its runs, which have so many threads."""

    @abstractmethod
    def execute(self, attempt: Any, stop: Any) -> None:
        """Executes the run of an attempt in a worker, and records its result; or interrupts it at a stop request."""


class TrialItems(Struct, frozen=True, kw_only=True):
    """The per-item results that a trial of a program has logged for a score."""

    name: str
    step: int
    count: int
    """0 if they cannot be read."""
    mean: float
    problem: str | None
    """Why they cannot be those of the score; None if they can, or if it was not logged at their step."""


class Trial(Struct, kw_only=True):
    """What a trial of a program has shown."""

    command: list[str]
    rows: list[tuple[int, dict[str, float]]] = []
    """Steps with the metrics that were logged there, or read from what was printed."""
    items: list[TrialItems] = []
    printed: list[str] = []
    """The last lines that it has printed."""
    end: str = ""
    """How it ended, in words."""
    is_cut: bool = False
    """Whether it was ended before it did so by itself."""
    problem: str = ""
    """Why it failed; empty if it did not."""

    def steps_of(self, metric: str) -> dict[int, float]:
        """Step -> value of a metric."""
        return {step: values[metric] for step, values in self.rows if metric in values}

    def is_complete(self, metric: str) -> bool:
        """Whether it has logged a validation score and its test score, or another validation score without one."""
        tests, validated = self.steps_of(f"test/{metric.removeprefix('val/')}"), self.steps_of(metric)
        return bool(validated) and (bool(tests) or len(validated) > 1)


class WithTrials(Kind):
    """A kind whose runs can be tried before anything is recorded."""

    @abstractmethod
    def try_out(self, config: Any, execution: Any, program: Any, folder: Path, runs: Path, seconds: float) -> Trial:
        """Starts a run in a folder, which writes into the folder `runs`, for so long at most. Raises LrurunError.

        `program` is the table of its recipe.
        """


class OwnReports(Kind):
    """A kind whose instances are no ladders: what its runs are called, and how they are shown, reported, repeated."""

    plural: ClassVar[str]

    @property
    @abstractmethod
    def request(self) -> type[Struct]:
        """What an instance records of the command that made it."""

    @abstractmethod
    def described(self, run: Run) -> str:
        """The name under which progress and lists show a run; empty if this version does not know it."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Dotted path -> type of the settings that its runs can have."""

    @abstractmethod
    def task(self, task: str) -> str:
        """The task of the ledger that a user may name in other words. Raises UsageError if there is none."""

    @abstractmethod
    def named(self) -> Sequence[Any]:
        """What can be run by name, in the order of lists; each has name, question, source, aliases."""

    @abstractmethod
    def get(self, name: str) -> Any:
        """The one of a name. Raises UsageError if there is none."""

    @abstractmethod
    def check(self, name: str) -> list[tuple[str, bool, str]]:
        """The checks of `lrurun check`: what is checked, whether it holds, and the numbers."""

    @abstractmethod
    def evidence(self, ledger: Ledger | None, task: str | None) -> dict[str, TaskEvidence]:
        """Task -> what the ledger has on it, for one task or all."""

    @abstractmethod
    def conclusion(self, ledger: Ledger, instance: LadderInstance) -> str:
        """The result of an instance in a sentence."""

    @abstractmethod
    def page(self, ledger: Ledger, instance: LadderInstance, figure: str) -> Page:
        """The report of an instance. `figure` is the element that shows its figure, if there is one."""

    @abstractmethod
    def drawing(self, ledger: Ledger, instance: LadderInstance) -> bytes:
        """The figure of an instance as an SVG file. Raises LrurunError if it cannot be drawn yet."""

    @abstractmethod
    def write_report(
        self, places: Places, task: str, profile: str | None, sets: Sequence[str], *, json: bool, out: Path | None
    ) -> int:
        """Prints or writes the report of a task; the exit code. Raises LrurunError."""

    @abstractmethod
    def repeat(self, places: Places, request: Any, options: Any, signals: Any) -> int:
        """Makes what remains of a recorded request, and prints its report; the exit code."""


def of(kind: str) -> Kind | None:
    """The kind that a run or an instance records; None for trainings."""
    of_kind: Kind | None = pkgutil.resolve_name(_KINDS[kind]) if kind in _KINDS else None
    return of_kind


def get(name: str) -> OwnReports:
    """The kind of this name, as "study"."""
    kind = of(name)
    assert isinstance(kind, OwnReports)
    return kind


def with_trials(kind: str) -> WithTrials:
    """The kind of a recipe's runs, as "program"."""
    of_kind = of(kind)
    assert isinstance(of_kind, WithTrials)
    return of_kind


def with_reports(kind: str) -> OwnReports | None:
    """The kind that a run or an instance records, if it has reports of its own; None for ladders."""
    return None if kind in LADDER_KINDS else get(kind)


def of_task(task: str | None) -> OwnReports | None:
    """The kind of the runs of a task, if it has reports of its own; None for the task of a ladder."""
    kind, separator, _ = (task or "").partition(":")
    return with_reports(kind) if separator and kind in _KINDS else None


def every() -> list[OwnReports]:
    """All kinds with reports of their own."""
    return [get(STUDY)]
