"""Users' programs as a kind of runs. Everything is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lrurun.kinds import Trial, WithTrials, limited


class ProgramKind(WithTrials):
    """Executions of users' programs."""

    uses_jax = False

    def environment(self, threads: int) -> Mapping[str, str]:
        return limited(threads)

    def execute(self, attempt: Any, stop: Any) -> None:
        from lrurun.programs import execution

        execution.execute(attempt, stop)

    def try_out(self, config: Any, execution: Any, program: Any, folder: Path, runs: Path, seconds: float) -> Trial:
        from lrurun.programs import trial

        return trial.run(config, execution, program, folder, runs, seconds, self.environment(execution.threads))


KIND = ProgramKind()
