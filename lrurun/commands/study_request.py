"""Which study a command is for, and what the supervisor of runs needs to know about its cells."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.commands import request as requests
from lrurun.commands.request import ASKED

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.studies.plan import StudyPlan

PROFILES = ("ci", "laptop", "paper")


class StudyRequest(Struct, frozen=True, kw_only=True):
    """A study with everything that decides its cells; stored in the ledger as JSON."""

    study: str
    profile: str = "laptop"
    cells: list[str] = []
    """Only those with these labels; all of them if empty."""
    seeds: str | None = None
    sets: list[str] = []
    user: str | None = None
    """Who made the request; recorded on servers, which several people may share."""

    def plan(self) -> StudyPlan:
        """The plan of the study.

        Raises:
            UsageError: an unknown name, or a value that is wrong.
        """
        from lrurun import studies
        from lrurun.config.runs import seeds_of
        from lrurun.config.settings import split_set
        from lrurun.studies import plan as planning

        study = studies.get(self.study)
        changes = dict(split_set(text, "rho=0.5") for text in self.sets)
        made = planning.make(study, self.profile, changes, None if self.seeds is None else seeds_of(self.seeds))
        made.choose(self.cells)
        return made

    def arguments(self) -> list[str]:
        """Of the command that computes it."""
        return shlex.split(self.command())[1:]

    def command(self) -> str:
        """The command that computes it."""
        arguments = ["lrurun", "study", self.study]
        arguments += [] if self.profile == "laptop" else ["--profile", self.profile]
        arguments += [argument for name in self.cells for argument in ("--cell", name)]
        arguments += [] if self.seeds is None else ["--seeds", self.seeds]
        return shlex.join([*arguments, *(argument for text in self.sets for argument in ("--set", text))])


class Selected(Struct, frozen=True, kw_only=True):
    """The cells that a command is for: what the supervisor of runs needs to know about them."""

    plan: StudyPlan
    cells: Sequence[str]
    fresh: bool = False

    @property
    def seeds(self) -> Sequence[int]:
        return self.plan.seeds

    @property
    def names(self) -> Sequence[str]:
        return self.plan.choose(self.cells)

    @property
    def data_name(self) -> str:
        return ""

    def instance(self, ledger: Ledger) -> LadderInstance:
        return ledger.add_ladder(self.plan.name, self.plan.task, self.plan.profile, self.plan.spec, kind="study")

    def tuning(self) -> dict[str, list[Any]]:
        return {}

    def next_tuning(self, rung: str, results: Sequence[Any]) -> list[Any]:
        return []

    def tuning_budget(self, rung: str) -> int:
        return 0

    def final(self) -> list[Any]:
        return self.plan.runs(self.cells)

    def chosen(self, rung: str, results: Sequence[Any]) -> tuple[None, list[Any]]:
        raise NotImplementedError("studies are not tuned")


def remember(ledger: Ledger, instance: LadderInstance, request: StudyRequest) -> None:
    """Records the request, unless it is the newest, so that `resume` can repeat it and `report` knows its seeds."""
    import msgspec

    table = {name: value for name, value in msgspec.structs.asdict(request).items() if name != "user"}
    text = msgspec.json.encode(table | requests.user_of(ledger)).decode()
    if text not in requests.texts(ledger, instance)[-1:]:
        ledger.event(ASKED, text, ladder=instance.key)


def newest_plan(ledger: Ledger, request: StudyRequest, plan: StudyPlan) -> StudyPlan:
    """The plan with the seeds of the newest command on this study, profile and settings."""
    import msgspec

    for instance in ledger.ladders(plan.name, plan.task):
        if (instance.profile, instance.spec) == (plan.profile, plan.spec):
            for newest in requests.recorded(ledger, instance, StudyRequest)[-1:]:
                return msgspec.structs.replace(request, seeds=newest.seeds).plan()
    return plan
