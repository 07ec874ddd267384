"""Kept results grow by shards, which never change."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lrurun.ledger.ledger import Ledger
from tests.docs import generated, kept
from tests.harness.machine import Machine
from tests.harness.results import fill


def test_no_shard_has_changed_and_all_are_listed() -> None:
    digests = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in kept.shards()]
    assert kept.DIGESTS.read_text().splitlines() == digests, (
        "a shard is never changed: restore it, and add another one; then write SHA256SUMS, as CONTRIBUTING says"
    )


def test_shards_are_numbered_belong_to_pages_and_are_small() -> None:
    files = {path for path in kept.FOLDER.iterdir() if path != kept.DIGESTS}
    assert files == set(kept.shards())
    numbers = [int(path.name[:2]) for path in kept.shards()]
    assert numbers == list(range(1, len(numbers) + 1))
    pages = {path.name[3:].removesuffix(".db.xz") for path in kept.shards()}
    assert pages <= {page.stem for page in generated.PAGES}
    assert sum(path.stat().st_size for path in kept.shards()) <= kept.LARGEST_SUM


def test_the_shards_of_a_page_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    for name, scores in (("01-map", [0.5, 0.6]), ("02-papers", [0.1]), ("03-map", [0.7])):
        ledger = tmp_path / f"{name}.db"
        fill(ledger, "sDigits", {"ring-init": scores}, first=2 * (name == "03-map"))
        Machine(tmp_path / name).run("ledger", "backup", "--ledger", str(ledger), "--out", f"{ledger}.xz")
    with kept.merged("map") as machine, Ledger.read(machine.ledger) as ledger:
        assert sorted(run.result["test/accuracy"] for run in ledger.runs()) == [0.5, 0.6, 0.7]
