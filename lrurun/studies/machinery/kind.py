"""Cells of studies as a kind of runs. Everything is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

from lrurun import studies
from lrurun.config.schema import CELL
from lrurun.errors import LrurunError
from lrurun.kinds import Kind, limited

if TYPE_CHECKING:
    from lrurun.ledger.values import Run


class StudyKind(Kind):
    """Cells of studies."""

    uses_jax = True

    def environment(self, threads: int) -> Mapping[str, str]:
        """One thread for NumPy's linear algebra: threads of several workers would wait for each other, thirty times
        longer than they compute with matrices of size 500, and the last bits would depend on the cores."""
        return limited(1)

    def execute(self, attempt: Any, stop: Any) -> None:
        from lrurun.studies.machinery import execution

        execution.execute(attempt, stop)

    def described(self, run: Run) -> str:
        from lrurun.studies.machinery.planning import cell_of

        try:
            study = studies.of_task(run.task)
            return study.described(cell_of(study, run.config, run.task))
        except LrurunError:  # this version does not know the study or the settings
            return ""

    def settings(self) -> dict[str, Any]:
        tables = [get_type_hints(study.settings) for study in studies.every()]
        return {f"{CELL}{name}": hint for table in tables for name, hint in table.items()}


KIND = StudyKind()
