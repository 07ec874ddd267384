"""The runs that `lrurun runs` lists, and their order."""

from __future__ import annotations

import contextlib
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from lrurun import kinds
from lrurun.config.schema import KIND, OPTIMIZER, choice_for, used_execution
from lrurun.config.settings import flatten
from lrurun.console import setting
from lrurun.data import tasks
from lrurun.errors import LedgerError, UsageError, nearest
from lrurun.judging import scores
from lrurun.judging.scores import ScoreForm
from lrurun.ledger.values import ValueType
from lrurun.ledger.where import grammar
from lrurun.report.live import progress

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run

SCREENFUL = 50
"""The most runs that a terminal shows unless --limit says otherwise."""
MOST_COMPARED = 1000
"""The largest number of runs whose settings are compared and shown; beside more, none are."""


class Choice:
    """The runs that `--where` and `--sort` select, checked against the names that a ledger's runs know."""

    def __init__(
        self,
        condition: str | None,
        sort: str | None,
        ledger: Ledger,
        *,
        names: tuple[str, str] = ("--where", "--sort"),
        further: Sequence[tuple[str, str]] = (),
        instance: str | None = None,
    ) -> None:
        """`names` are the options of the condition and the order, for messages; `further` has more names to check, each
        after the option that has it; `instance` is the short name or id of the only instance whose runs are listed.

        Raises:
            UsageError: a condition or name is wrong.
            NotFoundError: the ledger has no such instance.
        """
        from lrurun.ledger.where.names import Names

        self._names, self._further = names, further
        self._condition: grammar.Condition | None = None
        try:
            self._check(condition, sort, Names(_declared(), shares()))
        except UsageError:
            # It may be a metric of this ledger, and a message names the nearest one.
            with_metrics = Names((*ledger.result_names(), *_declared()), shares())
            known = ChainMap(ledger.program_settings(), _settings_of_kinds(), with_metrics)  # type: ignore[arg-type]
            self._check(condition, sort, known)
        if instance is not None and ledger.exists:
            of_instance = grammar.ValueComparison("instance", "=", ledger.ladder(instance).short_name, None)
            self._condition = of_instance if self._condition is None else grammar.And((of_instance, self._condition))

    def _check(self, condition: str | None, sort: str | None, names: Mapping[str, ValueType]) -> None:
        self._condition = grammar.parse(condition, names, self._names[0]) if condition is not None else None
        self.cautions = grammar.too_large(self._condition, names) if self._condition is not None else []
        self._descending = sort is not None and sort.startswith("-")
        self._sort = sort.removeprefix("-") if sort is not None else None
        if self._sort is not None:
            grammar.check_name(self._sort, names, self._names[1])
        for option, name in self._further:
            grammar.check_name(name, names, option)

    @property
    def condition(self) -> grammar.Condition | None:
        """The condition; None if every run is asked for."""
        return self._condition

    @property
    def sort(self) -> str | None:
        """The name by which runs are sorted; None: newest first."""
        return self._sort

    @property
    def descending(self) -> bool:
        """Whether the largest value comes first."""
        return self._descending

    @property
    def is_all(self) -> bool:
        """Whether every run is asked for."""
        return self._condition is None

    def likely(self, ledger: Ledger) -> str:
        """The end of a sentence about a name in the condition that no run has: what it is probably meant to be."""
        if self._condition is None:
            return ""
        hints = []
        wanted = {(c.name, c.text) for c in grammar.comparisons(self._condition) if c.operator == "="}
        fields: tuple[Literal["instance", "ladder", "rung", "task"], ...] = ("instance", "ladder", "rung", "task")
        for field in fields:
            existing = ledger.names_of(field) if field in dict(wanted) else []
            for text in sorted(text for name, text in wanted if name == field and text not in existing):
                hints += [f"; did you mean {field}={close}?"] if (close := nearest(text, existing)) else []
        return "".join(hints)

    def ids(self, ledger: Ledger, ladder: str | None = None, limit: int | None = None) -> list[str]:
        """The ids of the first `limit` runs that are asked for, of a ladder or of all."""
        return ledger.run_ids(self._condition, self._sort, descending=self._descending, ladder=ladder, limit=limit)


def _declared() -> list[str]:
    """The results that the metrics of tasks give, whether or not a run has them."""
    return [f"{split}/{name}" for split in ("val", "test") for name in tasks.metrics()]


def shares() -> set[str]:
    """The metrics that are fractions, and printed in per cent."""
    return {name for name, metric in tasks.metrics().items() if metric.symbol == "%"}


def _settings_of_kinds() -> dict[str, ValueType]:
    """The settings of runs that are no trainings."""
    from lrurun.ledger.where.names import type_of

    return {path: type_of(hint) for other in kinds.every() for path, hint in other.settings().items()}


def state(run: Run) -> str:
    """The state of a run, and whether it is superseded or excluded."""
    marks = {"superseded": run.superseded, "excluded": run.excluded is not None}
    return ", ".join([run.state, *(mark for mark, applies in marks.items() if applies)])


def flat(run: Run) -> dict[str, object]:
    """Dotted path -> value of all settings of a run."""
    execution = used_execution(run.config, run.execution)
    return {**dict(flatten(run.config)), **dict(flatten(execution, "execution."))}


def varying(runs: Sequence[Run], ledger: Ledger) -> tuple[list[str], dict[str, tuple[object, ...]]]:
    """The settings that differ between runs of the same task, profile and rung: what their names do not say.

    Also run id -> its values of them; digests are shortened. Cells are left out: their labels say it.
    """
    groups: dict[tuple[object, ...], dict[int, str]] = {}
    for run in runs:
        if progress.cell(run):
            continue
        membership = run.memberships[0] if run.memberships else None
        where = (membership.profile, membership.rung) if membership else None
        group = groups.setdefault((run.task, where), {})
        group.setdefault(run.config_id, run.id)  # one run of each configuration
    tables: dict[int, dict[str, object]] = {}

    def read(ids: Iterable[str]) -> list[dict[str, object]]:
        """The settings of runs, which are kept by the number of their configuration."""
        read = {run.config_id: dict(flatten(run.config)) for run in ledger.each(list(ids), brief=False)}
        tables.update(read)
        return list(read.values())

    names: dict[str, None] = {}
    for group in groups.values():
        if len(group) > 1:
            values: dict[str, set[object]] = {}
            group_tables = read(group.values())
            for table in group_tables:
                for name, value in table.items():
                    if name == f"settings.{table.get('reading.seed')}":  # which the seed repeats
                        continue
                    values.setdefault(name, set()).add(setting(value))
            differing = [name for name, different in values.items() if len(different) > 1 and name != "seed"]
            names |= dict.fromkeys(name for name in differing if not _follows(name, group_tables))
    if names:
        with contextlib.suppress(LedgerError):  # another version's configurations, which this list need not know
            read({run.config_id: run.id for run in runs if run.config_id not in tables}.values())
    first = {name: number for number, name in enumerate((KIND, OPTIMIZER, "optim.lr"))}
    ordered = sorted(names, key=lambda name: (name.partition(".")[0], first.get(name, len(first)), name))
    return ordered, {run.id: tuple(_short(tables.get(run.config_id, {}).get(name)) for name in ordered) for run in runs}


def _follows(name: str, tables: Iterable[Mapping[str, object]]) -> bool:
    """Whether a setting that only some recurrences or optimisers have differs only because these do."""
    choice = choice_for(name)
    values = {(table.get(choice), setting(table.get(name))) for table in tables} if choice is not None else set()
    return len(values) == len({of for of, _ in values}) > 1


def _short(value: object) -> object:
    """A digest without most of its digits; other values as they are."""
    return value[:19] if isinstance(value, str) and re.fullmatch("sha256:[0-9a-f]{64}", value) else value


# The table


def table(
    runs: Iterable[Run],
    user: str | None,
    columns: Sequence[str] = (),
    values: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    *,
    declared: Mapping[str, ScoreForm] = MappingProxyType({}),
    whole: bool = False,
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of a list of runs, of which there must be one.

    Args:
        user: the user of this process, who is not shown where there is no other.
        columns: names of fields, results and settings that are shown too.
        values: run id -> its values of these columns.
        declared: task -> the form of its scores, for tasks of users' programs and imports.
        whole: whether columns without content stay.
    """
    texts: dict[str, str] = {}
    rows, forms = [], []
    for run in runs:
        form = scores.of_task(run.task, run.result or (), declared)
        cells = [*_row(run, form), *map(_text, values.get(run.id, ()))]
        # Most cells are the same text in many rows; one copy of each keeps long lists small.
        rows.append([texts.setdefault(cell, cell) for cell in cells])
        forms.append(form)
    metric = _label_scores(rows, forms)
    headers = [*_FIRST, "state", "step", f"val {metric}", f"test {metric}", *_LAST, "cell", "user", *columns]
    for column, usual, least in () if whole else ((12, user, 1), (11, "", 1), (10, "", 1), (9, "", 2)):
        for row in [headers, *rows] if len({row[column] for row in rows} - {"", usual}) < least else ():
            del row[column]
    return headers, rows


def least_important(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The columns of `table` that a narrow terminal may leave out, those first that are the same in every row."""
    order = ["user", "numerics", "stage", "task", "step", *(name for name in headers if name.startswith("val "))]
    order += ["tags", "cell", "seed", *(name for name in headers if "." in name)]
    same = {name for name, *cells in zip(headers, *rows, strict=True) if len(set(cells)) < 2}
    return [*(name for name in order if name in same), *order]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else setting(value)


_FIRST, _LAST = ("id", "task", "rung", "stage", "seed"), ("numerics", "tags")
"""The columns before and after state, step and scores."""


def _row(run: Run, form: ScoreForm) -> list[str]:
    from lrurun.ledger.columns import COLUMNS

    result = run.result or {}
    return [
        *(COLUMNS[name].shown(run) for name in _FIRST),
        state(run),
        f"{run.step}/{run.steps}" if run.steps else str(run.step),
        *("" if (score := result.get(key)) is None else form.full(score) for key in (form.validation, form.result)),
        *(COLUMNS[name].shown(run) for name in _LAST),
        progress.cell(run),
        COLUMNS["user"].shown(run),
    ]


def _label_scores(rows: list[list[str]], forms: list[ScoreForm]) -> str:
    """The metric of all scores, for their columns; if they have several, each cell gets its own."""
    metrics = {form.name: form for row, form in zip(rows, forms, strict=True) if any(row[_SCORES])}
    if len(metrics) < 2:
        return next(iter(metrics.values()), forms[0]).heading
    for row, form in zip(rows, forms, strict=True):
        row[_SCORES] = [cell and form.labelled(cell) for cell in row[_SCORES]]
    return "score"


_SCORES = slice(7, 9)
"""The columns of scores."""
