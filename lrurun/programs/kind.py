"""Users' programs as a kind of runs. Everything is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lrurun.kinds import Kind, limited


class ProgramKind(Kind):
    """Executions of users' programs."""

    uses_jax = False

    def environment(self, threads: int) -> Mapping[str, str]:
        return limited(threads)

    def execute(self, attempt: Any, stop: Any) -> None:
        from lrurun.programs import execution

        execution.execute(attempt, stop)


KIND = ProgramKind()
