"""The values that the ledger returns: frozen, and independent of its tables."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from lrurun.config.schema import Config, Execution

Kind = Literal["training", "study"]
"""What a run is: the training of a model, or a cell of a study."""

STATES = ("queued", "running", "done", "diverged", "failed", "interrupted")
FINISHED = ("done", "diverged")
"""States that are results: a run in one of them never changes again."""

SCORE = "val/accuracy"
"""The validation score of tasks that declare no other metric."""

Outcome = Literal["done", "diverged", "failed", "interrupted", "exited"]
"""How an attempt ended: with the state of its run, or, "exited", because its process did not end it."""

Moment = Literal["start", "end"]
"""When eigenvalues were recorded: at initialisation, after the last step."""


class LadderInstance(Struct, frozen=True, kw_only=True):
    """A ladder with its task, profile and changed settings: what a command requests, not how much of it and how."""

    key: str
    """12 hex digits: a hash of name, task, profile and spec."""
    short_name: str
    """The name that people type, as in "npDigits-smoke". No other instance of the ledger has it."""
    name: str
    """Of the ladder."""
    task: str
    profile: str | None
    kind: Kind
    """Of its runs."""
    spec: dict[str, Any]
    """{"set": {path: value}, "tune": bool, "digest": text}: what else distinguishes the instances of a ladder. The
    digest is of the resolved rungs and the design of tuning."""
    created_at: float
    user: str | None = None
    """The user of the operating system who requested it first; None in ledgers of older versions."""


class Membership(Struct, frozen=True, kw_only=True):
    """A place of a run in a ladder instance; a run may have several."""

    ladder: str
    """Name of the ladder."""
    ladder_key: str
    instance: str
    """The short name of the ladder instance."""
    task: str
    profile: str | None
    user: str | None = None
    """Of the ladder instance."""
    rung: str
    stage: str
    position: int


class RunSettings(Struct, frozen=True, kw_only=True):
    """What a run is to do. Runs share them; nothing may change them."""

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
    kind: Kind
    task: str
    seed: int
    state: str
    step: int
    steps: int
    parameters: int | None
    last_loss: float | None = None
    """The newest training loss that was recorded, as the next two; None if it is NaN or there is none."""
    last_score: float | None = None
    """The newest validation score: of the metric that selects the model."""
    last_speed: float | None = None
    """The newest steps per second."""
    config_id: int
    """The same for runs whose configurations differ only in the seed."""
    settings: RunSettings | None
    """None where they were not read, see `Ledger.runs`."""
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
    """Why reports leave it out; None if they do not."""

    @property
    def config(self) -> Config:
        """What determines its result."""
        return self._read().config

    @property
    def execution(self) -> Execution:
        """How it is carried out."""
        return self._read().execution

    @property
    def sources(self) -> dict[str, str]:
        """Dotted path -> where the value of a setting comes from."""
        return self._read().sources

    def _read(self) -> RunSettings:
        if self.settings is None:
            raise ValueError(f"run {self.id} was read without its settings")
        return self.settings


class Curve(Struct, frozen=True, kw_only=True):
    """The values of one metric of a run, by step."""

    run: str
    key: str
    steps: memoryview
    """Whole numbers of 64 bits, read-only; `numpy.asarray` makes an array of it without copying, as of the next."""
    values: memoryview
    """Numbers of 64 bits; NaN and infinities are kept."""

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        count = len(self)
        ends = f", steps {self.steps[0]} to {self.steps[-1]}, last value {self.values[-1]:.6g}" if count else ""
        return f"Curve(run={self.run!r}, key={self.key!r}, points={count}{ends})"


class CommittedCurves(Struct, frozen=True, kw_only=True):
    """What no resume of a run changes."""

    attempt: int
    """The newest attempt that has begun; 0 before the first."""
    upto: int | None
    """The step of the last committed checkpoint, which is past these rows, 0 if there is none; None if the run is
    finished."""
    finished: bool
    curves: tuple[Curve, ...]
    """By key; only the rows that were asked for."""


class RunGroup(Struct, frozen=True):
    """The runs with the same values of some names."""

    values: tuple[Any, ...]
    metric: str
    runs: int
    n: int
    """Those of them that have a finite value of the metric."""
    mean: float | None
    stderr: float | None
    instances: tuple[str, ...]
    """The short names of their ladder instances."""


class StateSummary(Struct, frozen=True, kw_only=True):
    """The runs of one rung, stage and state together."""

    rung: str
    stage: str
    position: int
    """The smallest position of them in the ladder."""
    state: str
    count: int
    step: int
    """The sum of their steps so far."""
    steps: int
    """The sum of the steps that they train for."""
    loss: float | None
    """The mean of their last training losses: infinite if one is, None if there is none."""
    score: float | None
    """The mean of the validation scores in their results; of running runs, of the newest ones."""
    speeds: list[float]
    """Steps per second of those that have recorded them."""
    first_config: int
    """The smallest `config_id` of them."""
    last_config: int
    """The largest one."""


class RemainingWork(Struct, frozen=True, kw_only=True):
    """The remaining steps of the queued and running runs of a rung and stage, or of a ladder."""

    running: int
    """How many of them are running."""
    seconds: float
    """For the steps of those that have recorded a speed, one after the other."""
    runs: int
    """How many have not recorded one."""
    steps: int
    """The sum of their steps."""
    stalled: int
    """How many have recorded a speed of 0."""

    def duration(self, usual: float | None) -> float | None:
        """Seconds until all are finished, if those without a speed train at the `usual` one; None if that is unknown,
        or none is running."""
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
    """The last heartbeat of its supervisor."""
    seen_at: float
    """The last write of the worker itself: a hanging worker writes nothing, although its supervisor does."""
    ended_at: float | None
    outcome: Outcome | None
    """None until it ended."""
    reason: str | None
    """Why it ended, for people: "done", "diverged", "failed: ...", "interrupted: ...". """
    resumed_from: int | None
    environment: dict[str, Any]
    """Device, CPU, threads, versions, git commit, hash of the uncommitted changes."""
    numerics: int
    """Attempts with different numerics versions give the same run different last bits."""
    user: str | None = None
    """The user of the operating system whose process it is; None in ledgers of older versions."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    id: int
    run: str
    attempt: int
    step: int
    state: str
    """"saving" or "committed"."""
    path: str
    """Relative to the runs folder."""
    bytes: int | None
    sha256: str | None


class Event(Struct, frozen=True, kw_only=True):
    id: int
    run: str | None
    attempt: int | None
    time: float
    kind: str
    text: str
    """For people."""
    payload: dict[str, Any] | None = None
    """For programs, where the kind of event has one: the fields of a struct."""


class Owner(Struct, frozen=True, kw_only=True):
    """The process that claimed a run, identified by pid and start time on a host, boot and pid namespace."""

    host: str
    boot: str
    namespace: str
    pid: int
    pid_started: float
    user: str | None = None
    """Of the operating system."""


class ClaimedRun(Struct, frozen=True, kw_only=True):
    """A claimed run and the number of its attempt, which every later write carries."""

    run: Run
    attempt: int
