"""The task of runs whose data are not lrurun's: those of a user's program, and imported ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lrurun.data.metric import Metric
from lrurun.data.task import Spec, Task
from lrurun.errors import UsageError


class OutsideTask(Task):
    """A task of which lrurun knows only how it is scored."""

    version, classes = "", 0

    def __init__(self, name: str, title: str, metric: Metric, test_items: int | None = None) -> None:
        self.name, self.title, self._metric = name, title, metric
        self._test_items = test_items

    @property
    def metric(self) -> Metric:
        return self._metric

    def sizes(self, options: Any) -> dict[str, int]:
        """The number of test items, if the recipe has it; nothing else is known of its data."""
        return {} if self._test_items is None else {"test": self._test_items}

    def spec(self, options: Any, vocabulary: Sequence[str] = ()) -> Spec:
        raise UsageError(f"{self.name}: lrurun does not know the data of this task ({self.title})", "name another task")
