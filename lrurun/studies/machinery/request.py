"""The request of a study: which cells a command computes, and what the supervisor of runs needs to know about them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.instances import requests
from lrurun.ledger.values import REQUEST

if TYPE_CHECKING:
    from lrurun.config.runs import PlannedRun
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.runner.selection import RungTuning
    from lrurun.runner.work import Work
    from lrurun.studies.machinery.planning import StudyPlan

PROFILES = ("ci", "laptop", "paper")


class StudyRequest(Struct, frozen=True, kw_only=True):
    """A study with everything that decides its cells; stored in the ledger as JSON."""

    study: str
    profile: str = "laptop"
    cells: list[str] = []
    """The labels of the cells; all cells if empty."""
    seeds: str | None = None
    sets: list[str] = []
    user: str | None = None
    """Who made the request; recorded on servers, which several people may share."""
    name: str | None = None
    """The short name that the instance is to have; None for the one it has, or that is made of study and settings. It
    is recorded with the instance."""

    def plan(self) -> StudyPlan:
        """The plan of the study.

        Raises:
            UsageError: an unknown name, or a value that is wrong.
        """
        from lrurun import studies
        from lrurun.config.runs import parse_seeds
        from lrurun.config.settings import split_set
        from lrurun.studies.machinery import planning

        study = studies.get(self.study)
        changes = dict(split_set(text, "rho=0.5") for text in self.sets)
        plan = planning.make(study, self.profile, changes, None if self.seeds is None else parse_seeds(self.seeds))
        plan.choose(self.cells)
        return plan

    def arguments(self) -> list[str]:
        """The arguments of the command that computes it."""
        return shlex.split(self.command())[1:]

    def command(self) -> str:
        """The command that computes it."""
        arguments = ["lrurun", "study", self.study]
        arguments += [] if self.profile == "laptop" else ["--profile", self.profile]
        arguments += [argument for name in self.cells for argument in ("--cell", name)]
        arguments += [] if self.seeds is None else ["--seeds", self.seeds]
        return shlex.join([*arguments, *(argument for text in self.sets for argument in ("--set", text))])


class SelectedCells(Struct, frozen=True, kw_only=True):
    """The cells that a command is for, as the selection of a supervisor. Nothing in a study is tuned."""

    plan: StudyPlan
    cells: Sequence[str]

    def work(self, instance: LadderInstance, places: Places, **how: Any) -> Work:
        """The work on them; `how` has further fields of it."""
        from lrurun.runner.work import work_on

        return work_on(instance, places, "", self.plan.choose(self.cells), self.plan.seeds, **how)

    def final(self) -> list[PlannedRun]:
        return self.plan.runs(self.cells)

    def tuning(self) -> dict[str, RungTuning]:
        return {}


def remember(ledger: Ledger, instance: LadderInstance, request: StudyRequest) -> None:
    """Records the request, unless it is the newest, so that `resume` can repeat it and `report` knows its seeds."""
    import msgspec

    table = {name: value for name, value in msgspec.structs.asdict(request).items() if name not in ("user", "name")}
    payload = msgspec.to_builtins(table | requests.user_of(ledger))
    if payload not in [event.payload for event in requests.events(ledger, instance)[-1:]]:
        ledger.event(REQUEST, "requested", payload, ladder=instance.key)


def newest_plan(ledger: Ledger, request: StudyRequest, plan: StudyPlan) -> StudyPlan:
    """The plan with the seeds of the newest command on this study, profile and settings."""
    import msgspec

    for instance in ledger.ladders(plan.name, plan.task):
        if (instance.profile, instance.spec) == (plan.profile, plan.spec):
            for newest in requests.recorded(ledger, instance, StudyRequest)[-1:]:
                return msgspec.structs.replace(request, seeds=newest.seeds).plan()
    return plan
