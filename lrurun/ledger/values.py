"""What leaves the ledger: frozen values, never rows. What enters it: plain numbers, strings and dicts."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

STATES = ("queued", "running", "done", "diverged", "failed", "interrupted")
FINISHED = ("done", "diverged")
"""States that are results: such a run never changes again."""


class Ladder(Struct, frozen=True, kw_only=True):
    """A ladder instance: what a command asked for, without how much and how."""

    key: str
    """Text, hash of ladder, task, profile, changes and tuning."""
    name: str
    task: str
    profile: str | None
    spec: dict[str, Any]
    """{"set": {path: value}, "tune": bool, ...}: what makes two instances of one ladder differ."""
    created_at: float


class Wanted(Struct, frozen=True, kw_only=True):
    """A run that a ladder asks for."""

    fingerprint: str
    task: str
    rung: str
    stage: str
    """"tune" or "train"."""
    seed: int
    steps: int
    config: dict[str, Any]
    execution: dict[str, Any]
    provenance: dict[str, str]
    """Dotted path -> where its value came from."""
    position: int
    """Order within the ladder; smaller first."""


class Membership(Struct, frozen=True, kw_only=True):
    """A place of a run in a ladder; a run may have several."""

    ladder: str
    """Name of the ladder."""
    ladder_key: str
    task: str
    profile: str | None
    rung: str
    stage: str
    position: int


class Run(Struct, frozen=True, kw_only=True):
    """One training with one result."""

    id: str
    """First 12 hex digits of the fingerprint, with -2, -3 for a fresh repetition."""
    fingerprint: str
    generation: int
    superseded: bool
    task: str
    seed: int
    state: str
    step: int
    steps: int
    parameters: int | None
    config: dict[str, Any]
    execution: dict[str, Any]
    provenance: dict[str, str]
    result: dict[str, float] | None
    """Metrics at the best validation step ("val/accuracy", "test/accuracy", "best_step", ...), "steps_per_second"."""
    error: str | None
    data_sha256: str | None
    code: tuple[str, ...]
    """Distinct code versions (lrurun version and git commit) of its attempts."""
    created_at: float
    finished_at: float | None
    memberships: tuple[Membership, ...]
    """The instance it was first made for comes first."""
    tags: tuple[str, ...] = ()
    excluded: str | None = None
    """Why reports leave it out; None where they do not."""


class Standing(Struct, frozen=True, kw_only=True):
    """The runs of one rung, stage and state, taken together."""

    rung: str
    stage: str
    position: int
    """The first of theirs in the ladder."""
    state: str
    count: int
    first: int
    """Of `count`, those that are at no earlier place in the ladder: a run may be in several rungs."""
    resultless: int
    """Of `count`, those that have no result."""
    step: int
    """Taken by all of them."""
    steps: int
    loss: float | None
    """The mean of their last training losses; None where none is finite."""
    score: float | None
    """The mean of their validation accuracies."""
    speeds: tuple[float, ...]
    """Steps a second, of each that has told."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One process's go at a run."""

    run: str
    n: int
    host: str
    boot: str
    namespace: str
    pid: int
    pid_started: float
    started_at: float
    heartbeat_at: float
    """Last beat of its supervisor."""
    seen_at: float
    """Last write of the worker itself: one that hangs stops writing while its supervisor still beats."""
    ended_at: float | None
    reason: str | None
    """Why it ended: "done", "diverged", "failed", "interrupted: ...". """
    resumed_from: int | None
    environment: dict[str, Any]
    """Device, CPU, threads, versions, git commit, hash of the uncommitted changes."""


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


class Owner(Struct, frozen=True, kw_only=True):
    """The process that claims a run: alive while one of its pid and start runs on its host, boot and pid namespace."""

    host: str
    boot: str
    namespace: str
    pid: int
    pid_started: float


class Claim(Struct, frozen=True, kw_only=True):
    """A run in hand: the run and the number of the attempt, which every later write carries."""

    run: Run
    attempt: int
