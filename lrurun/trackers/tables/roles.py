"""What the name of a column says that its cells are.

Case does not matter, and blanks and hyphens count as underscores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from lrurun.trackers import State, Value
from lrurun.trackers.numbers import number

RUN = ("run_id", "_run_id", "run_uuid", "id", "run")
"""Columns that name the run: the first one whose cells repeat, where there are steps, else the first one."""
PROJECT = ("project", "experiment", "experiment_name")
"""Columns with the project of a run, the first one that is there. They stay settings, as they may say what varies."""
STEP = (
    *("_step", "step", "global_step", "trainer/global_step", "train/global_step", "training_iteration"),
    *("iteration", "iter", "epoch"),
)
"""Columns with steps, the first one that is there."""
NAME = ("run_name", "tags.mlflow.runname", "display_name", "name", "run")
STATE = ("state", "status")
STARTED = ("created", "created_at", "start_time", "started", "started_at")
ENDED = ("end_time", "ended", "ended_at", "finished_at")
CODE = ("tags.mlflow.source.git.commit", "git_commit", "git.commit", "commit")
METRIC, VALUE = "metric", "value"
"""Columns of a table with a row for each value of a metric."""
CHANGING = (
    *(*STATE, *ENDED, *STEP, "runtime", "_runtime", "duration", "elapsed", "elapsed_time", "walltime", "wall_time"),
    *("timestamp", "_timestamp", "updated", "updated_at", "last_updated", "heartbeat", "heartbeat_at"),
    *("tags", "notes", "note", "comment", "comments", "description"),
)
"""Columns whose cells change as a run goes on, or when people write about it."""
_RESULTS = frozenset(
    "test val valid validation eval dev acc accuracy loss error errors score reward return correct wrong".split()
)
"""Words in the names of results."""
SETTING_PREFIXES = ("params.", "config.", "config/")
METRIC_PREFIXES = ("metrics.", "summary.", "summary/")

_WORDS: dict[State, str] = {
    "finished": ("finished complete completed done success successful succeeded passed terminated ok closed published"),
    "crashed": (
        "crashed failed fail failure killed error errored timeout timed_out stopped exit exited broken dead died "
        "aborted cancelled canceled interrupted preempted preempting evicted oom oomkilled out_of_memory node_fail "
        "boot_fail launch_failed reconfig_fail deadline revoked removed"
    ),
    "running": (
        "running run active started starting finishing stopping completing cancelling pending pend queued scheduled "
        "created submitted runnable waiting idle held in_progress inprogress configuring paused suspended resizing "
        "requeued signaling stage_out unfinished unknown pruned"
    ),
}
"""The words of trackers and of schedulers of jobs, in lower case. A pruned trial was not trained to its end, as the
reader of Optuna's storages has it; a run that is being preempted ends there."""
STATES: dict[str, State] = {word: state for state, words in _WORDS.items() for word in words.split()}
"""Word for a state -> the state."""
_MILLISECONDS = 1e11
"""Numbers beyond it are milliseconds since 1970: as seconds they would be of the year 5138."""


def plain(name: str) -> str:
    """A name as it is compared."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def is_result(name: str) -> bool:
    """Whether the name of a column of numbers says that it is the result of a run."""
    return not _RESULTS.isdisjoint(re.split(r"[^a-z0-9]+", name.lower()))


def find_all(names: Iterable[str], known: Sequence[str], *, without: Iterable[str | None] = ()) -> list[str]:
    """The columns that have one of these known names, in their order."""
    by_plain: dict[str, str] = {}
    for name in names:
        if name not in without:
            by_plain.setdefault(plain(name), name)
    return [by_plain[name] for name in known if name in by_plain]


def stripped(name: str, prefixes: Sequence[str]) -> str | None:
    """A name without the prefix that says what it is; None if it has none of these."""
    for prefix in prefixes:
        if name.lower().startswith(prefix) and len(name) > len(prefix):
            return name[len(prefix) :]
    return None


def state_of(cell: Value) -> State | None:
    """The state that a cell says; None for words that are not known. Nobody knows how a run without a word ended: it
    counts as running. "TrialState.COMPLETE", "CANCELLED by 1000" and "CANCELLED+" are as enumerations of Python and
    Slurm write states."""
    if cell is None:
        return "running"
    if not isinstance(cell, str):
        return None
    return STATES.get(plain(cell).rpartition(".")[2].partition("_by_")[0].rstrip("+"))


def seconds_of(cell: Value) -> float | None:
    """The time in a cell, in seconds since 1970: a date of ISO 8601, of UTC where it has no zone, or a number of
    seconds or milliseconds. None if it is none."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, int | float):
        seconds = number(cell)
        if seconds is None or not math.isfinite(seconds):
            return None
        return seconds / 1000 if seconds > _MILLISECONDS else seconds
    if not isinstance(cell, str):
        return None
    try:
        time = datetime.fromisoformat(cell.strip())
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
