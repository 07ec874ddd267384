"""Kinds of runs: what the rest of the program finds by the kind that a run records."""

from __future__ import annotations

from typing import get_args

import pytest

from lrurun import kinds, studies
from lrurun.config.schema import LADDER_KINDS, RunKind
from lrurun.data import tasks
from lrurun.errors import UsageError
from lrurun.studies.machinery import study_claims


def test_every_kind_but_training_has_an_object():
    for name in get_args(RunKind):
        assert (kinds.of(name) is None) == (name == "training"), name
    assert len(kinds.every()) == len(get_args(RunKind)) - 1


def test_studies_are_the_only_kind_without_ladders():
    """Commands, pages and sessions take an instance of another kind for one of a study."""
    assert set(get_args(RunKind)) - set(LADDER_KINDS) == {studies.STUDY}


def test_settings_of_kinds_do_not_hide_each_other():
    paths = [path for kind in kinds.every() for path in kind.settings()]
    assert "cell.rho" in paths
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("study", studies.every(), ids=studies.names())
def test_a_study_is_found_by_its_task_and_by_all_its_names(study):
    task = f"study:{study.name}"
    assert studies.is_task(task)
    assert all(studies.get(name) is study for name in (study.name, *study.aliases))
    assert {study_claims.task_of(f"study:{name}", None) for name in (study.name, *study.aliases)} == {task}
    evidence = study_claims.evidence(None, task)
    assert list(evidence) == [task]
    assert {claim.task for claim in evidence[task].claims} <= {task}


def test_an_unknown_study_is_refused_and_no_ladder_has_one():
    with pytest.raises(UsageError, match="unknown study 'memry'"):
        study_claims.task_of("study:memry", None)
    with pytest.raises(UsageError, match="--ladder lru: study:memory is a study"):
        study_claims.task_of("study:memory", "lru")


def test_tasks_on_which_models_are_trained_are_no_studies():
    assert not any(map(studies.is_task, tasks.TASKS))
    assert study_claims.task_of("sDigits", "lru") == "sDigits"
