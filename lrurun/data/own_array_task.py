"""Tasks of users' own arrays: a recipe's `[data]` says all that a model must know, so no code is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from lrurun import decoding
from lrurun.data import few_items
from lrurun.data.metric import R2, Accuracy, Exact, Metric
from lrurun.data.task import Count, Options, Output, Source, Spec, Split, Task

_Positive = Annotated[float, Meta(gt=0, le=3e38)]
_Number = Annotated[float, Meta(ge=-3e38, le=3e38)]


class OwnArrayOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts that `lrurun data import` has found in arrays. They belong to the digest: others are other data."""

    imported: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z", description="sha256: and 64 hex digits")]
    """The digest of the prepared arrays, which is the version of the data."""
    train: Count
    validation: Count
    test: Count
    kind: Literal["features", "tokens"]
    features: Count
    """Input features per step, or the size of the vocabulary, as in `Spec`."""
    length: Count
    classes: Count
    """Classes, or real values, of an output."""
    loss: Literal["cross-entropy", "squared-error"] = "cross-entropy"
    at: Literal["sequence", "positions"] = "sequence"
    labelled: Count | None = None
    groups: Count | None = None
    """Groups of the test items, such as speakers; None where they are not named."""
    mean: list[_Number] | None = None
    """Mean of each input feature over the real positions of the training split."""
    std: list[_Positive] | None = None
    label_mean: list[_Number] | None = None
    """Mean of each real value of the training labels: prepared labels are (label - label_mean) / label_std."""
    label_std: list[_Positive] | None = None

    def __post_init__(self) -> None:
        numbers = self.features if self.kind == "features" else 0
        values = self.classes if self.loss == "squared-error" else 0
        for name, count in {"mean": numbers, "std": numbers, "label_mean": values, "label_std": values}.items():
            if len(getattr(self, name) or ()) != count:
                raise ValueError(f"{name} must have {count} numbers, found {len(getattr(self, name) or ())}")
        self.output()

    def output(self) -> Output:
        """The output: what is predicted, and where."""
        return Output(loss=self.loss, at=self.at, labelled=self.labelled)


class OwnArrayTask(Task):
    """The task that these options describe."""

    options: ClassVar[type[Options]] = OwnArrayOptions

    def __init__(self, name: str, facts: OwnArrayOptions, source: Source | None = None) -> None:
        """`source` has the arrays while they are imported; without it, the data must be in the data folder."""
        self.name, self.facts, self.source = name, facts, source
        noun = ("value" if facts.classes == 1 else "values") if facts.loss == "squared-error" else "classes"
        where = " at positions" if facts.at == "positions" else ""
        self.title = f"imported arrays, {facts.classes} {noun}{where}"
        self.version, self.classes = facts.imported, facts.classes
        self.restore = (
            f"import the same arrays again: lrurun data import {name} ..., as the recipe's first lines say, "
            f"after removing the folder {name} if there is one; or copy that folder from another data folder"
        )

    @property
    def metric(self) -> Metric:
        """R^2 of real values, accuracy of classes."""
        return R2() if self.facts.loss == "squared-error" else Accuracy(chance=1 / self.classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        per_position = self.facts.loss == "cross-entropy" and self.facts.at == "positions"
        return (self.metric, Exact()) if per_position else (self.metric,)

    def sizes(self, options: Any) -> dict[str, int]:
        return {"train": options.train, "validation": options.validation, "test": options.test}

    def spec(self, options: Any, vocabulary: Sequence[str] = ()) -> Spec:
        return Spec(
            name=self.name,
            kind=options.kind,
            features=options.features,
            classes=options.classes,
            length=options.length,
            output=options.output(),
            mean=tuple(options.mean or ()),
            std=tuple(options.std or ()),
        )

    def offline(self, options: Any) -> Source | None:
        return self.source

    def few_items(self, groups: Sequence[int] | None = None) -> str:
        """A sentence on how far the choice of so few test items moves a score; "" where there are enough.

        Args:
            groups: the number of test items in each group, where that is known.
        """
        facts = self.facts
        return few_items.caution(
            self.metric, facts.test, groups or facts.groups, several=facts.at == "positions" and facts.labelled != 1
        )

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str | np.ndarray:
        """The tokens of an example, or its first numbers."""
        if spec.kind == "tokens":
            return super().example(spec, split, index, vocabulary)
        return " ".join(f"{number:.4g}" for number in np.ravel(split.inputs[index])[:64].tolist())


def make(name: str, data: Mapping[str, Any], where: str) -> OwnArrayTask:
    """The task of a `data` table with the key `imported`: of a recipe or, then with the version, of a run.

    Raises:
        UsageError: a setting that is missing, unknown or wrong; `where` names the table.
    """
    settings = {key: value for key, value in data.items() if key != "version"}
    return OwnArrayTask(name, decoding.convert(settings, OwnArrayOptions, where))
