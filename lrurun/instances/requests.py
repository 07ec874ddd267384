"""The request of a ladder command: its options. Ledgers record requests, so that `lrurun resume` can repeat them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from lrurun import paths, plugins
from lrurun.config.instance import ladder_command
from lrurun.console import clean
from lrurun.errors import LedgerError, UsageError
from lrurun.ledger.values import REQUEST

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.config.ladder import Ladder
    from lrurun.config.recipe import Recipe
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Event, LadderInstance

R = TypeVar("R", bound=Struct)

FRESH_LEDGER = "fresh.db"
"""The ledger that is proposed for a repetition with fresh seeds."""


class LadderRequest(Struct, frozen=True, kw_only=True):
    """A ladder on a task, with everything that decides its runs. Ledgers record it as JSON, see `remember`."""

    task: str
    ladder: str
    profile: str | None
    rungs: list[str] = []
    """The rungs that are trained; all of them if empty."""
    seeds: str | None = None
    tune: bool
    extend: int | None = None
    """How many values tuning may add to the grid of each rung; None: as the recipe says."""
    sets: dict[str, Any]
    """Dotted path -> the value of `--set`. Ledgers record the texts."""
    load: list[str] = []
    """The files of `--load`, as `resume` finds them."""
    decide: bool = False
    """Whether seeds are added until all is decided."""
    max_seeds: int | None = None
    """The largest number of seeds with `decide`; None: as recorded, else 20."""
    chosen_by: list[int] = []
    """The seeds by whose validation scores the same command has chosen the values that are trained."""
    user: str | None = None
    """Who made the request; recorded on servers, which several people may share."""
    name: str | None = None
    """The short name that the instance is to have; None for the one it has, or that is made of files and options. It is
    recorded with the instance."""

    def check(self) -> None:
        """Raises UsageError if no look of the design of `--decide` has that number of seeds."""
        from lrurun.judging.sequential import SHARES

        if self.max_seeds is not None and self.max_seeds not in SHARES:
            raise UsageError(
                f"--max-seeds {self.max_seeds}: expected {' or '.join(map(str, SHARES))}, the looks of the design",
                "no look is earlier, because verdicts of fewer seeds do not hold when seeds fail",
            )

    def command(self, *more: str, name: str = "ladder") -> str:
        """The command that trains this instance of the ladder in the same places, or another one about it, with `more`
        arguments."""
        return self._anywhere(*more, *paths.place_options(), name=name)

    def _anywhere(self, *more: str, name: str = "ladder") -> str:
        """The command without the places that the command line names."""
        ladder = None if self._has_default_ladder else self.ladder
        extend = None if self.extend is None else str(self.extend)
        options = {"--ladder": ladder, "--profile": self.profile, "--set": self.sets, "--tune": self.tune}
        options |= {"--extend": extend}
        return ladder_command(self.task, options, *more, name=name)

    @property
    def is_plain(self) -> bool:
        """Whether the task alone names the instance, without further options."""
        return self._has_default_ladder and not (self.profile or self.tune or self.sets)

    @property
    def _has_default_ladder(self) -> bool:
        """Whether a command that names the task and no ladder is for this one."""
        from lrurun.config.ladder import default_ladder

        if self.ladder == self.task:
            return True
        with suppress(UsageError):  # a program without rungs has no such ladder
            return self.ladder == default_ladder(self.task)
        return False

    @property
    def _rung_options(self) -> list[str]:
        return [word for name in self.rungs for word in ("--rung", name)]

    def with_seeds(self, seeds: str) -> str:
        """The command that trains its rungs with these seeds."""
        return clean(self.command(*self._rung_options, "--seeds", seeds, *plugins.load_options()))

    def on_devices(self, count: int) -> str:
        """The command that trains the same runs on another number of devices."""
        changed = msgspec.structs.replace(self, sets=self.sets | {"execution.devices": count})
        more = ["--decide"] if self.decide else ["--seeds", self.seeds] if self.seeds else []
        return clean(changed.command(*self._rung_options, *more, *plugins.load_options()))

    def repeated(self, seeds: str, longer: str) -> LadderRequest:
        """The same with other seeds and, where it is not empty, the value of `--set` in `longer`."""
        from lrurun.config.settings import parse_sets

        changed = parse_sets([longer] if longer else [])
        sets = {path: value for path, value in self.sets.items() if path not in changed} | changed
        return msgspec.structs.replace(self, seeds=seeds, sets=sets, decide=False, max_seeds=None)

    def fresh(self) -> str:
        """The command that trains its rungs in a ledger of their own, because reports of this one would count the runs
        together with the others."""
        words = [*self._rung_options, "--seeds", self.seeds or "", "--ledger", FRESH_LEDGER, *plugins.load_options()]
        return clean(self._anywhere(*words))

    def arguments(self, seeds: Sequence[int]) -> list[str]:
        """The arguments of the command that trains the same runs in the same folder: the same for a recorded
        request."""
        more = self._rung_options
        if self.decide:
            more += ["--decide", *([] if self.max_seeds is None else ["--max-seeds", str(self.max_seeds)])]
        else:
            more += ["--seeds", list_of(seeds)]
        more += [] if self.name is None else ["--name", self.name]
        task, ladder = _absolute("recipes", self.task), _absolute("ablations", self.ladder)
        return shlex.split(msgspec.structs.replace(self, task=task, ladder=ladder)._anywhere(*more))[1:]

    def plan(self, files: Mapping[str, str] | None = None) -> planning.Plan:
        """The plan by which the ladder is trained on the task, by the documents that are here. `files` are recorded
        digests of the files of a program, in place of the present ones.

        Raises:
            UsageError: an unknown name, a value or a file that is wrong, or runs that were imported.
        """
        from lrurun.config.ladder import load_ladder
        from lrurun.config.recipe import load_recipe
        from lrurun.instances import phrases

        ladder, recipe = load_ladder(self.ladder), load_recipe(self.task)
        if recipe.imported is not None:
            raise phrases.not_trained_here(self.task, recipe)
        return self._plan_of(ladder, recipe, files)

    def plan_in(self, ledger: Ledger) -> planning.Plan:
        """The plan with which a ledger is read: a ladder, a recipe and files of a program that are not here are as the
        ledger records them.

        Raises:
            UsageError: as `plan`; or a recorded ladder needs a plug-in that is not loaded.
        """
        from lrurun.config.programs import MissingFile
        from lrurun.instances import documents

        ladder, recipe, files = documents.of_names(self.ladder, self.task, ledger)
        try:
            return self._plan_of(ladder, recipe, files)
        except MissingFile:
            if (files := documents.recorded_files(ledger, recipe.task)) is None:
                raise
            return self._plan_of(
                ladder, recipe, files
            )  # to read what a ledger has of a program, its files are not needed

    def _plan_of(self, ladder: Ladder, recipe: Recipe, files: Mapping[str, str] | None) -> planning.Plan:
        from lrurun.config import planning

        return planning.of_documents(
            ladder, recipe, profile=self.profile, sets=self.sets, tune=self.tune, extend=self.extend, files=files,
            imports=True,
        )  # fmt: skip

    def chosen(self, plan: planning.Plan) -> tuple[Sequence[planning.ResolvedRung], Sequence[int]]:
        """The rungs and seeds of the plan that are requested."""
        from lrurun.config import planning
        from lrurun.config.runs import parse_seeds

        seeds = str(plan.seeds) if self.seeds is None else self.seeds
        return planning.choose_rungs(plan, self.rungs), parse_seeds(seeds)


def ladder_or_default(ladder: str | None, task: str | None) -> str:
    """The ladder that a command names, else the one in the file of its recipe, else `lru`."""
    from lrurun.config.ladder import default_ladder

    return ladder or default_ladder(task or "")


def remember(
    ledger: Ledger, instance: LadderInstance, request: LadderRequest, plan: planning.Plan, seeds: Sequence[int]
) -> None:
    """Records the request for `lrurun resume`, from any folder, unless it is the newest for its runs."""
    from lrurun.config import plugin_code
    from lrurun.config.ladder import named_tasks
    from lrurun.config.settings import set_text

    folder = paths.find("ablations", request.ladder).parent
    own = {os.path.realpath(folder / file) for file in plan.ladder.load}
    used = {file for rung in plan.rungs for file in plugin_code.files_of(rung.config)}
    sources = (plugins.source_of("task", task) for _, task in named_tasks(plan.ladder))
    used |= {source.file for source in sources if source is not None and source.file is not None}
    load = [file for file in plugins.named_files() if os.path.realpath(file) in used - own]
    table = {
        "task": _absolute("recipes", request.task),
        "ladder": _absolute("ablations", request.ladder),
        "profile": request.profile,
        "rungs": request.rungs,
        "seeds": list_of(seeds),
        "tune": request.tune,
        **({} if request.extend is None else {"extend": request.extend}),
        "sets": [set_text(path, value) for path, value in request.sets.items()],
        **({"load": load} if load else {}),
        **({"seeds": None, "decide": True, "max_seeds": request.max_seeds} if request.decide else {}),
        **({"chosen_by": request.chosen_by} if request.chosen_by else {}),
        **user_of(ledger),
    }
    table = msgspec.to_builtins(table)
    recorded = {_runs_of(event.payload): _parsed(event.payload) for event in events(ledger, instance)}
    if recorded.get(_runs_of(table)) != _parsed(table) or newest_instances(ledger)[_runs_of(table)] != instance.key:
        ledger.event(REQUEST, "requested", table, ladder=instance.key)


def user_of(ledger: Ledger) -> dict[str, str | None]:
    """The user of this process, as requests in a ledger on a server have it."""
    from lrurun.ledger import owner

    return {"user": owner.user()} if ledger.database.is_shared else {}


def recorded(ledger: Ledger, instance: LadderInstance, type_: type[R]) -> list[R]:
    """The requests that were recorded for a ladder instance, oldest first; a repeated one stands where it is newest.

    Of requests that differ only in how runs are executed, as in execution.devices, the newest counts.

    Raises:
        LedgerError: a recorded request cannot be read as one of this type.
    """
    return decoded(events(ledger, instance), type_, instance)


def decoded(events: Sequence[Event], type_: type[R], instance: LadderInstance) -> list[R]:
    """The requests in the events that record them for an instance, as `recorded`."""
    newest_first: dict[str, Any] = {}
    for event in reversed(events):
        newest_first.setdefault(_runs_of(event.payload), event.payload)
    return [decode(payload, type_, instance) for payload in reversed(newest_first.values())]


def decode(payload: Any, type_: type[R], instance: LadderInstance) -> R:
    """A request from the payload of the event that records it.

    Raises:
        LedgerError: it cannot be read as one of this type.
    """
    try:
        return msgspec.convert(_parsed(payload) if type_ is LadderRequest else payload, type_)
    except msgspec.ValidationError as error:
        raise LedgerError(
            f"ladder {instance.short_name}: its recorded command cannot be read ({error})",
            "lrurun ledger check says whether the file is damaged; else run the ladder command instead",
        ) from None


def _runs_of(payload: Any) -> str:
    """What a recorded request says about the runs to train, without how they are executed."""
    table = _parsed(payload)
    if isinstance(table, dict) and isinstance(sets := table.get("sets"), dict):
        table["sets"] = [[path, value] for path, value in sets.items() if not path.startswith("execution.")]
    return json.dumps(table, sort_keys=True, default=str)


def _parsed(payload: Any) -> Any:
    """A recorded request with the values of `--set` as `LadderRequest` has them; what is no request stays as it is."""
    from lrurun.config.settings import parse_sets

    with suppress(UsageError, AttributeError, TypeError, KeyError):
        sets = payload["sets"]
        return {**payload, "sets": sets if isinstance(sets, dict) else parse_sets(sets)}
    return payload


def made(ledger: Ledger) -> list[tuple[str, str]]:
    """All requests in the order in which they were recorded, without how runs are executed, each with the key of the
    instance that it was made for."""
    return [(_runs_of(event.payload), key) for key, event in ledger.events_of_ladders(REQUEST)]


def newest_instances(ledger: Ledger) -> dict[str, str]:
    """Request, without how runs are executed -> the key of the instance that it was last made for: with changed files,
    the same request is another instance."""
    return dict(made(ledger))


def events(ledger: Ledger, instance: LadderInstance) -> list[Event]:
    """The events that record requests for a ladder instance, oldest first."""
    return ledger.events(ladder_key=instance.key, of_runs=False, kind=REQUEST)


def list_of(seeds: Sequence[int]) -> str:
    """Seeds as `--seeds` takes a list of them: the comma makes one number a list."""
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")


def _absolute(group: paths.Group, name: str) -> str:
    """The name of a packaged file, the absolute path of any other."""
    path = paths.find(group, name)
    return name if path.parent.resolve() == paths.packaged(group).resolve() else os.path.abspath(path)
