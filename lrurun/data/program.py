"""The task of a user's program, which has data of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lrurun.data.metric import Metric
from lrurun.data.task import Spec, Task
from lrurun.errors import UsageError


class ProgramTask(Task):
    """The task of a program, of which lrurun knows only how it is scored."""

    version, classes = "", 0

    def __init__(self, name: str, command: Sequence[str], metric: Metric) -> None:
        self.name, self.title, self._metric = name, f"a program: {' '.join(command)}", metric

    @property
    def metric(self) -> Metric:
        return self._metric

    def sizes(self, options: Any) -> dict[str, int]:
        """Empty: nothing is known of its data."""
        return {}

    def spec(self, options: Any, vocabulary: Sequence[str] = ()) -> Spec:
        raise UsageError(f"{self.name}: is the task of a program, whose data lrurun does not know", "name another task")
