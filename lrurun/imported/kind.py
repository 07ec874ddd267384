"""Imported runs as a kind of runs: nothing executes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lrurun.kinds import Kind, limited


class ImportedKind(Kind):
    """Runs that were made elsewhere."""

    uses_jax = False

    def environment(self, threads: int) -> Mapping[str, str]:
        return limited(threads)

    def execute(self, attempt: Any, stop: Any) -> None:
        raise RuntimeError("an imported run was made elsewhere, and is not executed")


KIND = ImportedKind()
