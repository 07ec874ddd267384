"""Kept results: compressed ledgers in docs/kept that never change; new results are new ledgers, for small clones."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.harness.machine import Machine

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "kept"
DIGESTS = FOLDER / "SHA256SUMS"
"""What `sha256sum *.db.xz` prints in the folder."""
LARGEST_SUM = 20_000_000
"""Bytes of all shards together."""


def shards(page: str = "*") -> list[Path]:
    """The shards, by their numbers, of which a page of docs/ shows the runs: `NUMBER-PAGE.db.xz`."""
    return sorted(FOLDER.glob(f"[0-9][0-9]-{page}.db.xz"))


@contextmanager
def merged(page: str) -> Iterator[Machine]:
    """A machine whose ledger has the runs of all shards of a page."""
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        first, *others = shards(page)
        with lzma.open(first) as packed, machine.ledger.open("wb") as ledger:
            shutil.copyfileobj(packed, ledger)
        for shard in others:
            machine.run("ledger", "merge", str(shard))
        yield machine
