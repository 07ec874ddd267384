"""Runs that were made elsewhere: the table `[import]` of a recipe. Its rungs have conditions in place of changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from lrurun.config import metric_names
from lrurun.config.ladder import Ladder
from lrurun.config.schema import ImportedConfig, Origin, Reading
from lrurun.data.metric import ESCAPE, Metric, declared
from lrurun.decoding import Fault
from lrurun.errors import UsageError

_Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]


_TEST = ("test",)
_VALIDATION = ("val", "valid", "validation", "dev", "eval")
"""The words with which names of metrics say of which split they are."""


def _without(words: Collection[str], metric: str) -> str:
    """The name of a metric without a word at its beginning or end, and the sign between: "acc" of "val/acc"."""
    either = "|".join(words)
    found = re.fullmatch(rf"(?:{either})[/_.: -]+(.+)|(.+?)[/_.: -]+(?:{either})", metric, re.IGNORECASE)
    return metric if found is None else found[1] or found[2]


def _named(metric: str) -> str:
    """The name of a metric that means nothing else to lrurun, where "top@5" is a score of a further test with the name
    5, and the step of an escape no score."""
    name = re.sub(r"\s*@\s*", "_at_", metric)
    return f"{name}_of_run" if name == ESCAPE else name


class ImportTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[import]`: where the runs are, and which of their numbers are seeds and scores."""

    source: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Files, folders or addresses with the runs; relative paths are from the folder of this file."""
    from_: str = field(name="from")
    """The kind of the source, as `lrurun import --from` takes it."""
    project: str = ""
    """The project or experiment to which reading is limited; empty for all."""
    metrics_file: str = ""
    """The name of the file with the metrics in the folder of each run, for tools that write none of their own."""
    metric: Annotated[str, Meta(min_length=1)]
    """The metric whose values are the scores that verdicts are about, as in "test_acc"."""
    direction: Literal["max", "min"]
    """Whether higher or lower scores are better."""
    at: Literal["last", "best"] | Annotated[int, Meta(ge=0, le=2**62)] = "last"
    """The step whose score counts: "last"; a number; or "best", the step at which `metric_for_choice` is best."""
    metric_for_choice: str = ""
    """The validation metric that chooses the step with at = "best", and the settings in `choose`."""
    direction_for_choice: Literal["max", "min"] | None = None
    """Whether higher or lower values of `metric_for_choice` are better; without it, as `direction`."""
    protocol: Literal["holdout", "best-of-test"] = "holdout"
    """"best-of-test": each run counts with the best of its scores, so that they were selected on what they measure;
    every report says so."""
    seed: str = ""
    """The setting that has the seed; empty: the runs of a rung are numbered."""
    choose: tuple[str, ...] = ()
    """Settings of which each rung counts one combination: the one that is best by `metric_for_choice`."""
    crashed: Literal["missing", "failed"] = "missing"
    """Whether runs that crashed or were killed are missing, or failures that rank below all others."""
    repeat: Literal["", "latest", "mean", "all"] = ""
    """Which of several runs of one rung and seed count: the latest; their mean; all, as seeds of their own. Empty:
    there must be none."""
    chance: _Finite | None = None
    """The score of a guess, with which runs without a usable score count in comparisons; without it, they count in
    ranks only."""
    unit: str = ""
    """The unit of scores; with "%", they are fractions, which are printed in per cent."""
    per_cent: bool = False
    """Whether the tracker has per cent where fractions are meant: scores are divided by 100."""
    share: bool | None = None
    """Whether the score is a share of test items, as an accuracy; without it, scores with the unit "%" are."""
    test_items: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """The number of test items."""
    items: str = ""
    """The column with lists of per-item results, or the name of a file with them in the folder of each run."""
    decimals: Annotated[int, Meta(ge=0, le=12)] | None = None
    """Decimals of printed scores; without it, 1 for per cent, else 3."""

    @property
    def name(self) -> str:
        """The name of the score, as in "acc": the metric without what says that it is of the test split."""
        return _named(_without(_TEST, self.metric))

    @property
    def result(self) -> str:
        """The name of the score among the results of a run, as in "test/acc"."""
        return f"test/{self.name}"

    @property
    def result_for_choice(self) -> str:
        """The name of `metric_for_choice` among the results of a run, as in "val/acc"."""
        return f"val/{_named(_without(_VALIDATION, self.metric_for_choice))}"

    @property
    def choice_is_twin(self) -> bool:
        """Whether `metric_for_choice` is the score on the validation split, by its name, so that it has its unit."""
        return self.result_for_choice == f"val/{self.name}"

    @property
    def reading(self) -> Reading:
        """What decides the result of a run."""
        return Reading(
            metric=self.metric,
            direction=self.direction,
            at=self.at,
            metric_for_choice=self.metric_for_choice or None,
            direction_for_choice=self.direction_for_choice,
            protocol=self.protocol,
            seed=self.seed or None,
            crashed=self.crashed,
            repeat=self.repeat or None,
            per_cent=self.per_cent,
            items=self.items or None,
        )

    @property
    def is_share(self) -> bool:
        """Whether the score is a share of test items."""
        return self.unit == "%" if self.share is None else self.share

    @property
    def is_higher_better_for_choice(self) -> bool:
        """Whether higher values of `metric_for_choice` are better."""
        return (self.direction_for_choice or self.direction) == "max"


def validation_metrics(metrics: Iterable[str], metric: str) -> list[str]:
    """The metrics that are a score on the validation split, by their names: "val_acc" and "acc/valid" of "test_acc"."""
    stem = _without(_TEST, metric).lower()
    return [name for name in metrics if name != metric and _without(_VALIDATION, name).lower() == stem != name.lower()]


def metric_of(table: ImportTable) -> Metric:
    """How the runs are scored."""
    return declared(
        table.name,
        unit=table.unit,
        decimals=table.decimals,
        higher_is_better=table.direction == "max",
        chance=table.chance,
        is_share=table.is_share,
    )


def is_best_of_test(table: ImportTable) -> bool:
    """Whether the score is the best of several test scores of a run, by its name."""
    is_judged = metric_names.split_of(table.metric) in ("test", None)
    return is_judged and metric_names.is_best_of_steps(table.metric, table.direction)


def rules(table: ImportTable, where: str) -> Iterator[UsageError]:
    """Faults of the table beyond its types."""
    at = f"{where} [import]"
    if table.at == "best" and not table.metric_for_choice:
        hint = 'name the validation metric: metric_for_choice = "val_acc"'
        yield Fault('"best" needs metric_for_choice, which chooses the step', at, "at", hint=hint)
    if table.choose and not table.metric_for_choice:
        hint = 'name the validation metric: metric_for_choice = "val_acc"'
        yield Fault("needs metric_for_choice, by which settings are chosen", at, "choose", hint=hint)
    if table.metric_for_choice == table.metric:
        hint = 'name a validation metric; protocol = "best-of-test" counts the best score of each run'
        yield Fault(
            "is the score itself, which would be chosen and judged by the same numbers",
            at,
            "metric_for_choice",
            hint=hint,
        )
    elif table.protocol != "best-of-test" and metric_names.split_of(table.metric_for_choice) == "test":
        yield Fault(
            "is of the test split by its name, so that it would choose by what is judged",
            at,
            "metric_for_choice",
            value=table.metric_for_choice,
            hint='name a validation metric; protocol = "best-of-test" (--protocol) allows it, and every report says so',
        )
    if table.protocol != "best-of-test" and is_best_of_test(table):
        yield Fault(
            "is the best over steps by its name, chosen by what is judged",
            at,
            "metric",
            value=table.metric,
            hint="name the metric of each step, whose last value counts, or the one at the step with the best "
            'validation score; protocol = "best-of-test" (--protocol) counts it, and every report says so',
        )
    if table.metric_for_choice and table.direction_for_choice is None and not table.choice_is_twin:
        by_name = metric_names.direction_of(table.metric_for_choice)
        if by_name != table.direction:
            better = {"min": "lower", "max": "higher", None: ""}[by_name]
            rule = f"{better} values are better by its name, unlike those of the score"
            if by_name is None:
                rule = "its name does not say whether higher or lower values are better"
            hint = f'write direction_for_choice = "{by_name or table.direction}", or the other one'
            yield Fault(rule, at, "metric_for_choice", value=table.metric_for_choice, hint=hint)
    if table.direction_for_choice is not None and not table.metric_for_choice:
        hint = 'name the validation metric: metric_for_choice = "val_loss"'
        yield Fault("needs metric_for_choice, whose direction it is", at, "direction_for_choice", hint=hint)
    if table.seed and table.seed in (table.metric, table.metric_for_choice):
        yield Fault("is a metric, and no seed", at, "seed", value=table.seed, hint="name another setting, or remove it")
    for name in dict.fromkeys(table.choose):
        if name in (table.seed, table.metric, table.metric_for_choice):
            what = "the seed" if name == table.seed else "a metric"
            yield Fault(f"{name} is {what}, and no setting to choose", at, "choose", hint="remove it")
        if table.choose.count(name) > 1:
            yield Fault(f"{name} is there {table.choose.count(name)} times", at, "choose", hint="name it once")
    if table.repeat and not table.seed:
        hint = 'name the setting with the seed: seed = "seed"; or remove `repeat`'
        rule = "needs a seed: without one, the runs of a rung are numbered, and none repeats another"
        yield Fault(rule, at, "repeat", value=table.repeat, hint=hint)
    if table.chance is not None and table.unit == "%" and not 0 <= table.chance <= 1:
        hint = "write 0.1 for 10 %"
        yield Fault('with unit = "%", scores are fractions from 0 to 1', at, "chance", value=table.chance, hint=hint)
    if table.protocol == "best-of-test" and table.at != "last":
        yield Fault('protocol = "best-of-test" is the best of all steps', at, "at", value=table.at, hint="remove it")


def config_of_rung(task: str, table: ImportTable) -> ImportedConfig:
    """The configuration of a rung before its runs are known."""
    origin = Origin(tracker=table.from_, run="")
    return ImportedConfig(task=task, origin=origin, reading=table.reading, settings={}, seed=0)


def ladder_faults(ladder: Ladder, table: ImportTable | None) -> Iterator[UsageError]:
    """Faults of the rungs and claims of a ladder on imported runs; without `table`, of conditions on other ones."""
    if table is None:
        for rung in ladder.rungs:
            if rung.where:
                hint = "write the settings that the rung changes into `change`"
                yield UsageError(f"{ladder.path}, rung {rung.name}, where: is for imported runs", hint)
        return
    for rung in ladder.rungs:
        at = f"{ladder.path}, rung {rung.name}"
        if not rung.where:
            yield UsageError(f"{at}: has no condition on its runs", "as in: where = \"norm = 'layer' and depth = 4\"")
        for name in ("change", "takes", "tunes", "resets", "lr", "tune"):
            if getattr(rung, name):
                yield UsageError(
                    f"{at}, {name}: is for what lrurun trains", "remove it: `where` says which runs it has"
                )
    for claim in ladder.claims:
        if claim.has_scope or claim.is_about_speed or claim.metric:
            yield UsageError(
                f"{ladder.path}, claim {claim.text!r}: of imported runs, only the score is known",
                "claim something about scores",
            )
