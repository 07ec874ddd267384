"""Kinds of runs: what the rest of the program finds by the kind that a run records."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from lrurun import kinds
from lrurun.config.schema import LADDER_KINDS, RunKind
from lrurun.data import tasks
from lrurun.errors import UsageError
from lrurun.ledger.ledger import Ledger


def test_every_kind_but_training_has_an_object():
    for name in get_args(RunKind):
        assert (kinds.of(name) is None) == (name == "training"), name
    assert len(kinds.every()) == len(set(get_args(RunKind)) - set(LADDER_KINDS))


@pytest.mark.parametrize("kind", kinds.every(), ids=lambda kind: kind.plural)
def test_a_kind_knows_its_tasks_by_all_their_names(kind: kinds.Kind, tmp_path: Path):
    with Ledger.read(tmp_path / "ledger.db") as ledger:
        for task, found in kind.evidence(ledger, None).items():
            assert kinds.of_task(task) is kind
            assert kind.task(task) == task
            assert kind.evidence(ledger, task) == {task: found}
            assert {claim.task for claim in found.claims} <= {task}
    for one in kind.named():
        assert all(kind.get(name) is one for name in (one.name, *one.aliases))
    with pytest.raises(UsageError):
        kind.get("unknown")


def test_tasks_on_which_models_are_trained_have_no_other_kind():
    assert all(kinds.of_task(task) is None for task in (None, *tasks.TASKS))
