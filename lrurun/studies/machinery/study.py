"""What a study is: a question, a grid of cells, a simulation or closed form, checks, and a figure.

A cell is one point of the grid and one seed. It is a run of the ledger, with the task "study:NAME", so that
it has a fingerprint, is interrupted and is executed by workers as every run. Nothing here imports jax.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from msgspec import Meta, Struct, structs

from lrurun.console import setting
from lrurun.report.figures.figures import Figure
from lrurun.studies.machinery.checks import Check
from lrurun.studies.machinery.evidence import StudyClaim

Rho = Annotated[float, Meta(ge=0, le=1)]
"""The autocorrelation of the input between neighbouring steps."""
Radius = Annotated[float, Meta(ge=0, lt=1)]
"""An absolute value of an eigenvalue inside the unit circle, where the closed forms hold."""
Count = Annotated[int, Meta(ge=1, le=10**8)]
Rate = Annotated[float, Meta(gt=0, le=10)]
"""A learning rate."""

Array = np.ndarray[Any, Any]
Values = dict[str, float | Array]
"""Name -> a number, or the numbers of a curve. All are float64 in the ledger."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a cell; a profile has a list for those that are the axes of the grid. Fields need defaults."""


S = TypeVar("S", bound=Settings)


class CellResult(Struct, Generic[S], frozen=True, kw_only=True):
    """A finished cell, as the ledger has it."""

    cell: S
    seed: int
    run: str
    """The id of its run."""
    diverged: bool
    values: dict[str, float]
    curves: dict[str, Array]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


class Results(Sequence[CellResult[S]], Generic[S]):
    """The finished cells of a study, in the order of its grid."""

    def __init__(self, cells: Sequence[CellResult[S]], profile: str) -> None:
        self._cells, self.profile = tuple(cells), profile

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, index: Any) -> Any:
        return self._cells[index]

    def __iter__(self) -> Iterator[CellResult[S]]:
        return iter(self._cells)

    def where(self, condition: Callable[[CellResult[S]], bool] | None = None, **settings: Any) -> Results[S]:
        """The cells with these settings, for which `condition` holds."""
        return Results(
            [
                cell
                for cell in self._cells
                if all(getattr(cell.cell, name) == value for name, value in settings.items())
                and (condition is None or condition(cell))
            ],
            self.profile,
        )

    def axis(self, name: str) -> list[Any]:
        """The distinct values of a setting, in the order of the grid."""
        return list(dict.fromkeys(getattr(cell.cell, name) for cell in self._cells))

    def by_seed(self, value: str) -> dict[int, float]:
        """Seed -> a value, of cells that differ in the seed alone."""
        return {cell.seed: cell.values[value] for cell in self._cells}

    def best(self, axis: str, value: str) -> Results[S]:
        """The cells of that value of an axis, as of the learning rate, whose mean of `value` over seeds is smallest.

        Means that are not finite lose; if none is finite, the result is empty.
        """
        means = {}
        for point in self.axis(axis):
            values = [result.values.get(value, np.nan) for result in self.where(**{axis: point})]
            if np.all(np.isfinite(values)):
                means[point] = float(np.mean(values))
        return self.where(**{axis: min(means, key=means.__getitem__)}) if means else Results([], self.profile)


@cache
def _defaults(settings: type[Settings]) -> dict[str, Any]:
    return structs.asdict(settings())


class Study(ABC, Generic[S]):
    """A figure of a paper. Subclasses have no state; a module has one instance, `STUDY`."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    """Names by paper and figure, for example "lru-fig8"."""
    source: ClassVar[str]
    """The paper and its figure."""
    question: ClassVar[str]
    published: ClassVar[str]
    """What the paper's figure shows, in a sentence."""
    claims: ClassVar[tuple[StudyClaim, ...]] = ()
    """What the paper says about the figure, and the evidence for and against it."""
    version: ClassVar[int] = 1
    """Raised when the same settings give other numbers: then all cells are new runs."""
    settings: ClassVar[type[Any]]
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Profile -> changed settings; a list of values is an axis of the grid. All studies have "ci", "laptop", "paper".
    """
    seeds: ClassVar[Mapping[str, int]] = {}
    """Profile -> number of seeds, where it is not 1."""
    seeded: ClassVar[bool] = True
    """Whether numbers depend on the seed; where they do not, there is one."""
    simulates: ClassVar[bool] = False
    """Whether cells import jax, which then computes in float64."""
    stand_in: ClassVar[Mapping[str, str]] = {}
    """Profile -> a sentence on what stands in for the paper's data or scale, where something does."""

    exact: ClassVar[bool] = False
    """Whether profiles differ only in the points at which closed forms are evaluated, so that nothing stands in."""

    def label(self, cell: S) -> str:
        """The name under which progress and lists show a cell, as its architecture."""
        return "cell"

    def described(self, cell: S) -> str:
        """The label, and the settings beside it that distinguish the cell, as in "dense, nu=0.9, rate=1".

        These are the axes of the profiles' grids and what is not the default, unless the label depends on it.
        """
        parts = [label := self.label(cell)]
        for name, default in _defaults(type(cell)).items():
            value = getattr(cell, name)
            axis = [values for table in self.profiles.values() if isinstance(values := table.get(name), list)]
            other_values = [other for other in chain([default], *axis) if other != value]
            shown = axis or value != default
            if shown and all(self.label(structs.replace(cell, **{name: other})) == label for other in other_values):
                parts.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={setting(value)}")
        return ", ".join(parts)

    def has(self, cell: S) -> bool:
        """Whether a point of the grid is a cell."""
        return True

    def steps(self, cell: S) -> int:
        """How many steps `simulate` yields: 1 for closed forms."""
        return 1

    @abstractmethod
    def simulate(self, cell: S, seed: int) -> Values | Generator[int, None, Values]:
        """The numbers of a cell. A generator yields the step that it has reached, where it may be stopped.

        A cell that is stopped starts again from its first step. It has diverged if one of its numbers is not finite.
        """

    @abstractmethod
    def checks(self, results: Results[S]) -> list[Check]:
        """The checks that must hold of the finished cells."""

    @abstractmethod
    def answer(self, results: Results[S]) -> str:
        """The result in one sentence, with its numbers."""

    @abstractmethod
    def draw(self, results: Results[S]) -> Figure:
        """The figure, of numbers that the ledger has; its labels have mathematics between dollar signs."""

    def figure(self, results: Results[S]) -> Figure:
        """The figure as it is drawn into a file."""
        return structs.replace(self.draw(results), mathematics=True)
