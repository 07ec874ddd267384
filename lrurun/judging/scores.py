"""How the scores of a metric are printed, and which of the columns of a task's results hold them."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct, structs

from lrurun.config import metric_names
from lrurun.data import tasks
from lrurun.data.metric import ESCAPE, Accuracy, Metric, named

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance


LARGE = 1e9
"""Numbers from here on are printed with a power of ten."""
_DIGITS = 2
"""Decimals before a power of ten, in the short form."""


def number(value: float, decimals: int, *, least: float | None = None, digits: int = _DIGITS, sign: str = "") -> str:
    """A number with these decimals; with a power of ten from `LARGE` on, and below `least`, by default a thousandth of
    the last decimal."""
    least = 10.0 ** -(decimals + 3) if least is None else least
    if math.isfinite(value) and (abs(value) >= LARGE or 0 < abs(value) < least):
        return f"{value:{sign}.{digits}e}"
    return f"{value:{sign}z.{decimals}f}" if sign else f"{value:.{decimals}f}"


class ScoreForm(Struct, frozen=True, kw_only=True):
    """How scores are printed: times `scale`, with `decimals`. Means over seeds have one decimal more than single
    numbers, see `Metric`. Large numbers have a power of ten, and those below a thousandth of the last decimal.

    Differences have the `unit`; of two scores the higher one is better, or the lower one.
    """

    name: str = Accuracy().name
    unit: str = Accuracy().unit
    scale: float = Accuracy().scale
    decimals: int = Accuracy().decimals
    symbol: str = Accuracy().symbol
    higher_is_better: bool | None = True
    """Whether a higher score is better; None if that is not known, as the task is not loaded."""
    is_of_small: ClassVar[bool] = False
    """Whether errors and differences have a power of ten too where they would be printed as 0."""

    def beside(self, scores: Iterable[float | None]) -> ScoreForm:
        """The form of an error or a difference of these scores: one that is smaller than the last decimal is printed
        as 0, unless all of them have a negative power of ten."""
        known = [score for score in scores if score]
        if known and all(abs(score * self.scale) < self._least for score in known):
            return _SmallForm(**structs.asdict(self))
        return self

    @property
    def title(self) -> str:
        """The metric in a sentence."""
        return self.name.replace("_", " ").replace("@", " at ")

    @property
    def heading(self) -> str:
        """The metric in a narrow column: its symbol, if it has one."""
        return self.symbol or self.title

    @property
    def sentence(self) -> str:
        """The metric before a colon, for example "Test accuracy in per cent"."""
        unit = {"": "", "%": " in per cent"}.get(self.symbol, f" in {self.symbol}")
        text = self.on_test(self.title)
        return f"{text[0].upper()}{text[1:]}{unit}{self.direction}"

    def on_test(self, text: str) -> str:
        """The metric, as a title or on an axis, of the score that is compared, for example "test accuracy"; an imported
        score that its name says is of another split, for example "val acc", is not of the test split."""
        return text if metric_names.split_of(self.name) in ("validation", "training") else f"test {text}"

    @property
    def direction(self) -> str:
        """The end of a heading: ", lower is better" where that holds, else nothing."""
        return ", lower is better" if self.higher_is_better is False else ""

    @property
    def result(self) -> str:
        """The name of the test score in a result."""
        name, _, setting = self.name.partition("@")
        return ESCAPE if name == ESCAPE else f"test@{setting}/{name}" if setting else f"test/{name}"

    @property
    def validation(self) -> str:
        """The name of the validation score, and of its curve."""
        return f"val/{self.name}"

    @property
    def axis(self) -> str:
        """The metric on the axis of a figure, after "test" or "validation"."""
        return f"{self.title} [{self.symbol}]" if self.symbol else self.title

    def short(self, score: float) -> str:
        """A score with `decimals`, without a symbol."""
        return self._score(score, self.decimals, _DIGITS)

    def full(self, score: float) -> str:
        """A score with one decimal more: means, and the scores of single runs."""
        return self._score(score, self.decimals + 1, _DIGITS + 1)

    def short_size(self, value: float) -> str:
        """The size of an error or a difference, with `decimals`."""
        return self._size(value, self.decimals, _DIGITS, sign="")

    def size(self, value: float) -> str:
        """The size of an error or a difference, with one decimal more."""
        return self._size(value, self.decimals + 1, _DIGITS + 1, sign="")

    def needs_decimals(self, value: float) -> bool:
        """Whether the short form of an error or a difference is 0 and the full one is not."""
        return self._is_small(value, self.decimals) and not self._is_small(value, self.decimals + 1)

    @property
    def _least(self) -> float:
        """A thousandth of the last decimal: smaller scores have a power of ten."""
        return 10.0 ** -(self.decimals + 3)

    def _is_small(self, value: float, decimals: int) -> bool:
        """Whether it would be printed as 0 with so many decimals, though it is not."""
        scaled = value * self.scale
        return scaled != 0 and math.isfinite(scaled) and float(f"{scaled:.{decimals}f}") == 0

    def _score(self, score: float, decimals: int, digits: int, sign: str = "") -> str:
        scaled = score * self.scale
        if math.isfinite(score) and not math.isfinite(scaled):
            return f"{Decimal(score) * Decimal(self.scale):{sign}.{digits}e}"
        least = 10.0**-decimals / 2 if self.is_of_small else self._least
        return number(scaled, decimals, least=least, digits=digits, sign=sign)

    def _size(self, value: float, decimals: int, digits: int, sign: str) -> str:
        """An error or a difference; of one that overflows, the largest number and that it is beyond it."""
        if math.isinf(value):
            largest = math.copysign(sys.float_info.max, value)
            return f"{'over' if value > 0 else 'under'} {self._score(largest, decimals, digits, sign)}"
        if abs(value * self.scale) < self._least and not self.is_of_small:
            value = 0.0
        return self._score(value, decimals, digits, sign)

    def with_symbol(self, text: str) -> str:
        """A text with its symbol, for example "70.2 %"."""
        return f"{text} {self.symbol}" if self.symbol else text

    def labelled(self, text: str) -> str:
        """A text beside scores of other metrics, for example "70.2 %" or "0.912 r2"."""
        return f"{text} {self.heading}"

    def difference(self, value: float) -> str:
        """A difference with its sign, without the unit."""
        return self._size(value, self.decimals + 1, _DIGITS + 1, sign="+")

    def short_difference(self, value: float) -> str:
        return self._size(value, self.decimals, _DIGITS, sign="+")

    def published(self, score: float) -> str:
        """A score as papers print it: without a last decimal that is 0."""
        text = self.full(score)
        return text[:-1] if text.endswith("0") and "e" not in text else text

    def best(self, scores: Iterable[float]) -> float | None:
        """The best of them; None for none, and where it is not known which is better."""
        values = list(scores)
        if not values or self.higher_is_better is None:
            return None
        return max(values) if self.higher_is_better else min(values)


class _SmallForm(ScoreForm, frozen=True, kw_only=True):
    """The form of scores that are all below a thousandth of the last decimal."""

    is_of_small: ClassVar[bool] = True


ACCURACY = ScoreForm()


def form_of(metric: Metric) -> ScoreForm:
    """The printed form of a metric."""
    return ScoreForm(**{name: getattr(metric, name) for name in ScoreForm.__struct_fields__})


SPLITS = {"val": "validation", "test": "test"}
"""How names of scores begin -> the split that they are of."""


def metric_of_result(result: str, metrics: Sequence[Metric]) -> Metric | None:
    """The metric of a score, as in "test@256/accuracy"; None where the task does not declare it."""
    where, _, name = result.partition("/")
    split, _, test = where.partition("@")
    return named(f"{name}@{test}" if test else name, metrics) if split in SPLITS else None


def declared(ledger: Ledger, names: Iterable[str]) -> dict[str, ScoreForm]:
    """Task -> the form of its scores as the newest recipe declares it, for tasks of users' programs and imports."""
    wanted = {name for name in names if not tasks.is_built_in(name)}  # whose names these tasks cannot have
    forms: dict[str, ScoreForm] = {}
    for instance in reversed(ledger.ladders() if wanted else []):
        if instance.task in wanted and instance.task not in forms:
            forms |= of_instance(ledger, instance)
    return forms


def of_instance(ledger: Ledger, instance: LadderInstance) -> dict[str, ScoreForm]:
    """The task of an instance -> the form of its scores as its recipe declares it, for users' programs and imports."""
    if instance.kind not in ("program", "imported"):
        return {}
    events = ledger.events(ladder_key=instance.key, of_runs=False)
    payloads = [event.payload for event in events if event.kind == "documents" and event.payload]
    with contextlib.suppress(msgspec.ValidationError):  # of another version
        for payload in payloads[-1:]:
            return {instance.task: form_of(_metric_of(payload["recipe"]))}
    return {}


def _metric_of(recipe: Mapping[str, Any]) -> Metric:
    """The metric that a recorded recipe of a program or an import declares."""
    from lrurun.config import imported, programs

    if "import" in recipe:
        return imported.metric_of(msgspec.convert(recipe["import"], imported.ImportTable))
    return programs.metric_of(msgspec.convert(recipe["program"], programs.ProgramTable))


def of_task(
    task: str, results: Iterable[str] = (), declared: Mapping[str, ScoreForm] = MappingProxyType({})
) -> ScoreForm:
    """The form of the metric that selects the models of a task; `declared` has the forms that recipes declare.

    The task of a plug-in that is not loaded declares nothing: its metric is then the first validation score among the
    names of its `results`, printed as it is, and nothing says which of two scores is better; without one, accuracy. So
    is the score of a plug-in which has the name of a task of lrurun.
    """
    if task in declared:
        return declared[task]
    names = [name.removeprefix("val/") for name in results if name.startswith("val/") and name != "val/loss"]
    if task in tasks.TASKS and (not names or tasks.selected_on(task).name in names):
        return form_of(tasks.selected_on(task))
    if not names or Accuracy().name in names:
        return ACCURACY
    unit = names[0].replace("_", " ")
    return ScoreForm(name=names[0], unit=unit, scale=1.0, decimals=3, symbol="", higher_is_better=None)


def curves_of(*forms: ScoreForm | None, test: bool = False) -> dict[str, tuple[str, float]]:
    """Metric -> the label and the scale of its axis: the training loss, and the validation scores of these forms.

    `test`: also the test scores, which imported runs may have at every step.
    """
    scores = [form for form in forms if form is not None]
    axes = {"train/loss": ("training loss", 1.0)}
    axes |= {form.validation: (f"validation {form.axis}", form.scale) for form in scores}
    return axes | {form.result: (form.on_test(form.axis), form.scale) for form in scores if test}
