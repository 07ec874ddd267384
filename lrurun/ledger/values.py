"""The values that the ledger returns: frozen, and independent of its tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct, field

from lrurun.config.instance import Instance
from lrurun.config.runs import InstanceSpec
from lrurun.config.schema import Config, Execution, RunKind

State = Literal["queued", "running", "done", "diverged", "failed", "interrupted"]
"""The state of a run."""
STATES: tuple[State, ...] = get_args(State)
FINISHED = ("done", "diverged")
"""States that are results: a run in one of them never changes again."""

REQUEST = "asked"
"""Kind of the event of an instance that records a command for it."""

DOCUMENTS = "documents"
"""Kind of the event of an instance that records its ladder and recipe."""

RENAMED = "renamed"
"""Kind of the event of an instance that records its earlier short name."""

ITEMS_REFUSED = "items-refused"
"""Kind of the event of a run that says why per-item results are not recorded."""

KEEP = "keep"
"""The tag of runs that are not forgotten."""

BACK = "back"
"""Kind of the event of a run that was merged again after it was forgotten."""

SCORE = "val/accuracy"
"""The validation score of tasks that declare no other metric."""

Outcome = Literal["done", "diverged", "failed", "interrupted", "exited", "rejected"]
"""How an attempt ended: with the state of its run, or, "exited", because its process did not end it."""

Moment = Literal["start", "end"]
"""When eigenvalues were recorded: at initialisation, after the last step."""

ValueType = Literal["number", "share", "text", "truth", "set", "state", "time"]
"""The type of the values of a name. A set has several values, of which one must be equal, as a run's ladders."""


def instance_key(name: str, task: str, profile: str | None, spec: InstanceSpec) -> str:
    """The key of an instance of the ladder `name`."""
    values = [name, task, profile, spec.table]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class LadderInstance(Struct, frozen=True, kw_only=True):
    """A ladder with its task, profile and changed settings: what a command requests, not how much of it and how."""

    key: str
    """12 hex digits: a hash of name, task, profile and spec."""
    short_name: str
    """The name that people type, as in "npDigits-smoke". No other instance of the ledger has it."""
    name: str
    """The name of the ladder."""
    task: str
    profile: str | None
    kind: RunKind
    """The kind of all its runs."""
    spec: InstanceSpec
    created_at: float
    user: str | None = None
    """The user of the operating system who requested it first; None where the system names none."""

    @property
    def identity(self) -> Instance:
        """The identity of the instance, without the data of its runs."""
        spec = self.spec
        return Instance(
            ladder=self.name, task=self.task, profile=self.profile, set=spec.set, tune=spec.tune, extend=spec.extend,
            key=self.key, short_name=self.short_name, kind=self.kind,
        )  # fmt: skip


class Membership(Struct, frozen=True, kw_only=True):
    """The rung and the stage that a run has in a ladder instance; a run may have several."""

    ladder: str
    """The name of the ladder."""
    ladder_key: str
    instance: str
    """The short name of the ladder instance."""
    task: str
    profile: str | None
    user: str | None = None
    """The user who requested the ladder instance first."""
    rung: str
    stage: str
    position: int


class RunSettings(Struct, frozen=True, kw_only=True):
    """The settings of a run. Runs share them; nothing may change them."""

    config: Config
    execution: Execution
    sources: dict[str, str]
    """Dotted path -> where its value comes from."""


class Run(Struct, frozen=True, kw_only=True):
    """One training with one result."""

    id: str
    """First 12 hex digits of the fingerprint, with -2, -3 for a fresh repetition."""
    fingerprint: str
    generation: int
    superseded: bool
    kind: RunKind
    task: str
    seed: int
    state: State
    step: int
    steps: int
    parameters: int | None
    last_loss: float | None = None
    """The newest training loss that was recorded; None if it is NaN or there is none. So are the next two fields."""
    last_score: float | None = None
    """The newest value of the metric that selects the model."""
    last_speed: float | None = None
    """The newest steps per second."""
    config_id: int
    """The number of its configuration, which runs share if they differ only in the seed."""
    settings: RunSettings | None
    """The configuration, execution and sources; None if they were not read, see `Ledger.runs`."""
    result: dict[str, float] | None
    """Metrics at the best validation step ("val/accuracy", "test/accuracy", "best_step", ...), "steps_per_second"."""
    error: str | None
    data_sha256: str | None
    code: tuple[str, ...]
    """Distinct code versions (lrurun version and git commit) of its attempts, without those before it started again
    because of a new numerics version."""
    numerics: int | None = None
    """The numerics version of its newest attempt; None before the first."""
    created_at: float
    finished_at: float | None
    memberships: tuple[Membership, ...]
    """The first one is the instance that the run was created for."""
    tags: tuple[str, ...] = ()
    excluded: str | None = None
    """The reason why reports leave the run out; None if they do not."""

    @property
    def reached(self) -> str:
        """The step that it has reached, as in "step 12 of 30"; a program need not say how many there are."""
        return f"step {self.step}" + (f" of {self.steps}" if self.steps else "")

    @property
    def config(self) -> Config:
        """The configuration, which determines the result."""
        return self._read().config

    @property
    def execution(self) -> Execution:
        """The settings of how the run is carried out."""
        return self._read().execution

    @property
    def sources(self) -> dict[str, str]:
        """Dotted path -> where the value of a setting comes from."""
        return self._read().sources

    def _read(self) -> RunSettings:
        if self.settings is None:
            raise ValueError(f"run {self.id} was read without its settings")
        return self.settings


class RecordedCurve(Struct, frozen=True, kw_only=True):
    """The values of one metric of a run, by step."""

    run: str
    key: str
    steps: memoryview
    """Whole numbers of 64 bits, read-only; `numpy.asarray` makes an array of these and of `values` without copying."""
    values: memoryview
    """Numbers of 64 bits; NaN and infinities are kept."""

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        count = len(self)
        ends = f", steps {self.steps[0]} to {self.steps[-1]}, last value {self.values[-1]:.6g}" if count else ""
        return f"RecordedCurve(run={self.run!r}, key={self.key!r}, points={count}{ends})"


class GroupMean(Struct, frozen=True):
    """The mean of a metric over the runs with the same values in some columns."""

    values: tuple[Any, ...]
    metric: str
    runs: int
    n: int
    """The number of runs that have a finite value of the metric."""
    mean: float | None
    stderr: float | None
    instances: tuple[str, ...]
    """The short names of their ladder instances."""


class StateSummary(Struct, frozen=True, kw_only=True):
    """The runs of one rung, stage and state together."""

    rung: str
    stage: str
    position: int
    """The smallest position of these runs in the ladder."""
    state: str
    count: int
    step: int
    """The sum of the steps that the runs have reached."""
    steps: int
    """The sum of the steps for which the runs train."""
    loss: float | None
    """The mean of the last training losses: infinite if one of them is, None if there is none."""
    score: float | None
    """The mean of the finite validation scores in the results; for running runs, of the newest scores."""
    scored: int
    """How many runs have such a score."""
    speeds: list[float]
    """Steps per second of the runs that have recorded a speed."""
    created_at: float
    """When the newest of the runs was created."""
    finished_at: float | None
    """When the last of them finished."""
    first_config: int
    """The smallest `config_id` of the runs."""
    last_config: int
    """The largest `config_id` of the runs."""


class RemainingWork(Struct, frozen=True, kw_only=True):
    """The remaining steps of the queued and running runs of a rung and stage, or of a ladder."""

    running: int
    """The number of running runs."""
    seconds: float
    """Seconds for the remaining steps of the runs that have recorded a speed, one run after the other."""
    runs: int
    """The number of runs that have recorded no speed."""
    steps: int
    """The sum of the remaining steps of the runs that have recorded no speed."""
    stalled: int
    """The number of runs that have recorded a speed of 0."""

    def duration(self, usual: float | None) -> float | None:
        """Seconds until all runs are finished, if runs without a speed train at the `usual` speed; None if that is
        unknown, or no run is running."""
        if not self.running or self.stalled or (self.runs and not usual):
            return None
        return (self.seconds + (self.steps / usual if self.runs and usual else 0.0)) / self.running


class Attempt(Struct, frozen=True, kw_only=True):
    """One process's execution of a run."""

    run: str
    n: int
    host: str
    boot: str
    namespace: str
    pid: int
    pid_started: float
    started_at: float
    heartbeat_at: float
    """The time of the last heartbeat of the attempt's supervisor."""
    seen_at: float
    """The time of the worker's own last write: a hanging worker writes nothing, although its supervisor does."""
    ended_at: float | None
    outcome: Outcome | None
    """How the attempt ended; None before its end."""
    reason: str | None
    """The reason of its end, for people: "done", "diverged", "failed: ...", "interrupted: ...". """
    resumed_from: int | None
    environment: dict[str, Any]
    """Device, CPU, threads, versions, git commit, hash of the uncommitted changes."""
    numerics: int
    """Attempts with different numerics versions give the same run different last bits."""
    user: str | None = None
    """The user of the operating system whose process it is; None where the system names none."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    id: int
    run: str
    attempt: int
    step: int
    state: str
    """"saving" or "committed"."""
    path: str
    """The path relative to the runs folder."""
    bytes: int | None
    sha256: str | None


class Event(Struct, frozen=True, kw_only=True):
    id: int
    run: str | None
    attempt: int | None
    time: float
    kind: str
    text: str
    """A text for people."""
    payload: dict[str, Any] | None = None
    """The fields of a struct, for programs; None for kinds of events that have none."""


class Owner(Struct, frozen=True, kw_only=True):
    """The process that holds a run, identified by pid and start time on a host, boot and pid namespace."""

    host: str
    boot: str
    namespace: str
    pid: int
    pid_started: float
    user: str | None = None
    """The user of the operating system."""


class HeldRun(Struct, frozen=True, kw_only=True):
    """A run that a worker holds, and the number of its attempt, which every later write carries."""

    run: Run
    attempt: int


class Exclusion(Struct, frozen=True, kw_only=True):
    """A run that reports leave out."""

    run: str
    why: str
    time: float


class Hidden(Struct, frozen=True, kw_only=True):
    """An instance that `lrurun ledger hide` took out of lists."""

    time: float
    user: str | None


RemovalKind = Literal["forgotten", "left out"]
REMOVED: Mapping[RemovalKind, str] = {"forgotten": "forgotten", "left out": "left out of this copy"}
"""The kind of a removal -> in a sentence, after "2 runs were"."""


class RemovedInstance(Struct, frozen=True, kw_only=True):
    """An instance that was forgotten with all its runs."""

    key: str
    name: str
    """Its short name then."""
    ladder: str
    task: str
    profile: str | None
    set: dict[str, Any]
    tune: bool


class Removal(Struct, frozen=True, kw_only=True):
    """Runs that were removed together: forgotten here, or left out when a part of a ledger was copied."""

    key: str
    """The same in every ledger that has it."""
    kind: RemovalKind
    time: float
    user: str | None
    selection: str
    """What was named, as in "npDigits-2" or "--where 'seed>20'"."""
    why: str | None
    runs: int
    bytes: int | None
    """Of their files; None until these are removed, and for runs that were left out."""
    finished_at: float | None
    """None while files remain: `lrurun ledger forget` goes on with them."""
    instances: tuple[RemovedInstance, ...] = ()
    """The instances that were forgotten with all their runs."""


class RemovedRun(Struct, frozen=True, kw_only=True):
    """A run that was removed from an instance."""

    run: str
    instance: str = field(name="name")
    """The short name of the instance when it was removed."""
    ladder_key: str = field(name="instance")
    rung: str
    stage: str
    task: str
    seed: int
    state: State
    """When it was removed."""
    kind: RemovalKind
    why: str | None
    removed_at: float
    removed_by: str | None
    """The user of the operating system."""
