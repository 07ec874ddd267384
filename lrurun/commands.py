"""The commands that train, and the plan of what they would do."""

from __future__ import annotations

import contextlib
import json as jsonlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lrurun import catalog, console, paths, plugins, provenance
from lrurun import plan as planning
from lrurun.errors import LedgerError, UsageError
from lrurun.ledger.values import FINISHED, Run
from lrurun.ledger.values import Ladder as Instance
from lrurun.paths import Places

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.supervise import Signals

ASKED = "asked"
"""Kind of the event that records what a ladder command asked for."""


class Asked(Struct, frozen=True, kw_only=True):
    """The words of a ladder command."""

    task: str
    ladder: str
    profile: str | None
    rungs: list[str]
    seeds: str | None
    tune: bool
    sets: list[str] | dict[str, Any]
    load: list[str] = []
    """What `--load` named, as `resume` finds it."""

    def plan(self) -> planning.Plan:
        """What they mean."""
        return planning.make(self.task, ladder=self.ladder, profile=self.profile, sets=self.sets, tune=self.tune)


class How(Struct, frozen=True, kw_only=True):
    """How a ladder is worked at, whatever it asks for."""

    jobs: int | None = None
    pack: int = 1
    fresh: bool = False
    time_limit: str | None = None
    words: tuple[str, ...] = ()
    """Those of the command line, to be typed again."""

    def signals(self) -> Signals:
        """What stops it; its time limit begins now."""
        from lrurun.supervise import Signals

        return Signals(None if self.time_limit is None else seconds_of(self.time_limit))

    @property
    def command(self) -> str:
        return shlex.join(["lrurun", *self.words])


_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_WORDED = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS), re.ASCII)
_LONGEST = 366 * 86400


def seconds_of(text: str) -> float:
    """Seconds of a duration: `90`, `45m`, `1h30m`; or as Slurm writes them: `30:00`, `12:00:00`, `2-12:00:00`, `2-12`.

    Raises:
        UsageError: it is none, is nothing, or is longer than a year.
    """
    seconds = 0
    if text.isascii() and text.isdigit():
        seconds = int(text[:18])
    elif text and (worded := _WORDED.fullmatch(text)):
        seconds = sum(
            int((found or "0")[:18]) * unit for found, unit in zip(worded.groups(), _UNITS.values(), strict=True)
        )
    elif clocked := _CLOCK.fullmatch(text):
        days, *rest = ((found or "0")[:18] for found in clocked.groups())
        fields = [int(found) for found in rest]
        if clocked[1] is None and clocked[4] is None:
            fields = [0, *fields[:2]]  # minutes and seconds; after days the first is hours, however many follow
        hours, minutes, left = fields
        seconds = int(days) * 86400 + hours * 3600 + minutes * 60 + left
    if not 0 < seconds <= _LONGEST:
        raise UsageError(
            f"--time-limit {text[:100]}: expected a duration of at most a year",
            "in seconds, or as 45m, 1h30m, 2d, 12:00:00 or 2-12:00:00",
        )
    return float(seconds)


def ladder(places: Places, asked: Asked, how: How) -> int:
    """Runs what is left of a ladder and prints its table; the exit code."""
    signals = how.signals()
    plan = asked.plan()
    rungs = planning.choose_rungs(plan, asked.rungs)
    seeds = planning.seeds_of(asked.seeds if asked.seeds is not None else str(plan.seeds))
    _name_hidden(asked)
    return _climb(places, asked, plan, rungs, seeds, how, signals)


def _climb(
    places: Places,
    asked: Asked,
    plan: planning.Plan,
    rungs: Sequence[planning.ResolvedRung],
    seeds: Sequence[int],
    how: How,
    signals: Signals,
) -> int:
    from lrurun.ledger.store import PATIENCE, Ledger
    from lrurun.report.live import Display
    from lrurun.supervise import Stopped, Supervisor, check_data_folder, check_runs_folder, prepare_data

    readable = Ledger.read(places.ledger)  # what is no ledger of this version is refused before anything is written
    if readable is not None:
        readable.close()
    check_data_folder(places, plan)
    has_home = places.ledger.absolute().parent.is_dir()
    had_runs = places.runs.exists()
    if readable is not None or has_home:
        check_runs_folder(places)
    if readable is None and has_home:
        # no ledger is begun for data that cannot be had
        ready = False
        try:
            with signals.noted():
                prepare_data(places.data, plan, signals)
            ready = True
        except Stopped as stopped:
            console.say(f"stopped by {stopped} before any training; the same command goes on from here: {how.command}")
            return stopped.exit_code
        finally:
            if not ready and not had_runs:
                with contextlib.suppress(OSError):
                    places.runs.rmdir()  # goes only while it is empty
    with signals.noted(), Ledger.open(places.ledger, timeout=PATIENCE) as ledger:
        if ledger.note:
            console.warn(ledger.note)
        supervisor = None
        try:
            with Display() as display:
                supervisor = Supervisor(ledger, places, plan, rungs, seeds, how.jobs, display, signals, how.pack)
                _remember(ledger, supervisor.instance, asked, plan, seeds)
                outcome = supervisor.run(fresh=how.fresh)
            if not outcome.worked:
                console.say("nothing to do: every run of this ladder is finished")
            _print_report(ledger, plan, outcome.instance)
            if signals.first is not None:
                raise Stopped(signals.first)
        except Stopped as stopped:
            # none where the ledger was waited for
            left = "before any training" if supervisor is None else "with {} of {} runs left".format(*supervisor.left())
            console.say(f"stopped by {stopped} {left}; the same command goes on from here: {how.command}")
            return stopped.exit_code
        for run in outcome.runs:
            if run.state not in FINISHED:
                first = (run.error or _last_words(ledger, run)).splitlines()[0]
                console.warn(
                    f"run {run.id} ({run.memberships[0].rung}, seed {run.seed}): {first}; see lrurun show {run.id}"
                )
        return outcome.exit_code


def _last_words(ledger: Ledger, run: Run) -> str:
    """Why the workers of an unfinished run died, where their supervisor found out."""
    died = [event.text for event in ledger.events(run=run.id) if event.kind == "died"]
    return f"{run.state}: {died[-1]}" if died else run.state


def resume(places: Places, how: How) -> int:
    """Finishes every ladder of the ledger, oldest first, as far as it was ever asked for; the worst exit code."""
    signals = how.signals()
    from lrurun.ledger import owner
    from lrurun.ledger.store import Ledger

    if not places.ledger.exists():
        console.say("nothing to do: there is no ledger yet")
        return 0
    with Ledger.open(places.ledger) as ledger:
        ledger.reap(owner.here())
        unfinished = {
            instance.key: (instance, _asked(ledger, instance))
            for instance in ledger.ladders()
            if _unfinished(ledger, instance)
        }
    if not unfinished:
        console.say("nothing to do: every ladder of this ledger is finished")
        return 0
    worst = 0
    for instance, commands in unfinished.values():
        for asked in commands:
            try:
                code = _again(places, instance, asked, how, signals)
            except UsageError as error:  # one whose files have changed holds up none of the others
                console.fail(error)
                code = error.exit_code
            if code > 128:
                return code
            worst = max(worst, code)
    return worst


def _again(places: Places, instance: Instance, asked: Asked, how: How, signals: Signals) -> int:
    for file in asked.load:
        if not plugins.is_loaded(file, Path()):
            raise UsageError(
                f"ladder {instance.key}: was asked for with --load {file}",
                f"code is not taken from a ledger, name it again: lrurun resume --load {file}",
            )
    plan = asked.plan()
    if (plan.ladder.name, plan.recipe.task) != (instance.name, instance.task):
        raise UsageError(
            f"ladder {instance.key}: {asked.ladder} is now {plan.ladder.name} on {plan.recipe.task}, "
            f"it was {instance.name} on {instance.task}",
            "restore the files, or start another ladder",
        )
    rungs = planning.choose_rungs(plan, asked.rungs)
    seeds = planning.seeds_of(asked.seeds or str(plan.seeds))
    return _climb(places, asked, plan, rungs, seeds, how, signals)


def plan(places: Places, asked: Asked, *, json: bool) -> int:
    """Prints what a ladder would do; with -v also which parameter learns in which group."""
    from lrurun.ledger.store import Ledger

    made = asked.plan()
    rungs = planning.choose_rungs(made, asked.rungs)
    seeds = planning.seeds_of(asked.seeds if asked.seeds is not None else str(made.seeds))
    _name_hidden(asked)
    ledger = Ledger.read(places.ledger)
    known: dict[str, Run] = {}
    if ledger is not None:
        with ledger:
            known = {run.fingerprint: run for run in reversed(ledger.runs()) if not run.superseded}
    rows = [_planned(made, rung, seeds, known) for rung in rungs]
    jobs = len(provenance.accelerators()) or max(1, provenance.cores() // max(r.execution.threads for r in rungs))
    left = [row["seconds_left"] for row in rows if row["runs_left"]]
    total = None if None in left else sum(left) / jobs
    if json:
        console.write(
            jsonlib.dumps(
                {
                    "schema_version": 1,
                    "ladder": made.ladder.name,
                    "task": made.recipe.task,
                    "profile": made.profile,
                    "set": made.changes,
                    "tune": made.tune,
                    "seeds": list(seeds),
                    "workers": jobs,
                    "eta_seconds": total,
                    "rungs": rows,
                },
                indent=2,
                allow_nan=False,
            )
        )
        return 0
    _print_plan(made, rows, seeds, total, jobs)
    if console.verbosity() > 0:
        _print_groups(places, made, rungs)
    return 0


def _planned(
    made: planning.Plan, rung: planning.ResolvedRung, seeds: Sequence[int], known: dict[str, Run]
) -> dict[str, Any]:
    tuning = planning.wanted_tuning(made, [rung]) if made.tune else []
    found = [known.get(want.fingerprint) for want in tuning]
    chosen = all(run is not None and run.state in FINISHED for run in found)
    results = [run.result if run is not None and run.state == "done" else None for run in found]
    final = planning.wanted_final(made, rung, seeds, planning.choose_point(made, results) if tuning else None)
    states = [_state(known, want.fingerprint) for want in tuning]
    # which final runs there will be is known once the grid is finished; until then they count as left
    states += [_state(known, want.fingerprint) if chosen else "queued" for want in final]
    speed = _past_speed(rung, known)
    unfinished = [s for s in states if s not in FINISHED]
    steps = rung.config.train.steps * len(unfinished)
    return {
        "rung": rung.name,
        "title": rung.title,
        "on": rung.on,
        "same_as_before": rung.same_as_before,
        "moves": [
            {"path": move.path, "before": move.before, "after": move.after, "source": move.source}
            for move in rung.moves
        ],
        "steps": rung.config.train.steps,
        "tuning_runs": len(tuning),
        "runs": len(states),
        "runs_left": 0 if rung.same_as_before else len(unfinished),
        "runs_done": len(states) - len(unfinished),
        "steps_per_second": speed,
        "seconds_left": steps / speed if speed else None,
    }


def _state(known: dict[str, Run], fingerprint: str) -> str:
    return known[fingerprint].state if fingerprint in known else "queued"


def _past_speed(rung: planning.ResolvedRung, known: dict[str, Run]) -> float | None:
    """Steps a second of the newest finished run with this rung's model and batch."""
    from lrurun.report.comparison import SPEED

    def alike(config: Mapping[str, Any]) -> list[Any]:
        table = planning.common_settings(config)
        return [table["task"], table["data"], table["model"], table["train"]["batch"]]

    wanted = alike(planning.plain(rung.config))
    for run in reversed(known.values()):
        if run.result and SPEED in run.result and alike(run.config) == wanted:
            return run.result[SPEED]
    return None


def _print_plan(
    made: planning.Plan, rows: list[dict[str, Any]], seeds: Sequence[int], total: float | None, jobs: int
) -> None:
    from lrurun.report.progress import clock

    before = dict(pairwise(rung.name for rung in reversed(made.rungs)))
    table = []
    for row in rows:
        branches = row["on"] != before.get(row["rung"])
        moves = [
            f"{m['path'].removeprefix('model.').removeprefix('recurrence.')} = {_short(m['after'])}"
            for m in row["moves"]
            if m["after"] is not None and not m["path"].startswith("code.")
        ]
        moves += [f"code = {m['source']}" for m in row["moves"] if m["path"].startswith("code.")]
        what = "; ".join(moves) or "the first rung"
        if row["same_as_before"]:
            what = f"as {row['on']}" if branches else "as the rung before"
        elif branches:
            what = f"on {row['on']}: {what}"
        left = (
            ""
            if not row["runs_left"]
            else "unknown"
            if row["seconds_left"] is None
            else clock(row["seconds_left"] / jobs)
        )
        table.append([row["rung"], what, f"{row['runs_done']}/{row['runs']}", left])
    title = f"ladder {made.ladder.name} ({made.ladder.path}) on {made.recipe.task} ({made.recipe.path})"
    console.table(title, ["rung", "what moves", "done", "left"], table)
    if total is None:
        console.write("Time left: unknown, for no past attempt tells how fast these rungs train here.")
    else:
        count = sum(row["runs_left"] for row in rows)
        console.write(
            f"{count} runs left, seeds {', '.join(map(str, seeds))}: about {clock(total)} with {jobs} workers."
        )


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else jsonlib.dumps(value) if not isinstance(value, str) else value


def _print_groups(places: Places, made: planning.Plan, rungs: Sequence[planning.ResolvedRung]) -> None:
    """Which parameter learns in which group; building the model's shapes needs jax, and the size of the vocabulary."""
    import jax

    from lrurun.model import Model
    from lrurun.tasks import folder

    table = folder.manifest(made.task, made.options, places.data / made.data_name) or {}
    spec = made.task.spec(made.options, table.get("vocabulary", ()))
    for rung in rungs:
        model = Model(rung.config.model, spec)
        params, _ = jax.eval_shape(model.init, jax.random.key(0))
        rate = rung.config.optim.lr
        rates = {"recurrent": rate * rung.config.optim.recurrent_factor, "regular": rate, "undecayed": rate}
        rows = [
            [path, "x".join(map(str, shape)) or "1", group, f"{rates[group]:g}"]
            for path, shape, group in model.listing(params, decay_norm_bias=rung.config.optim.decay_norm_bias)
        ]
        console.table(f"{rung.name}: parameters", ["parameter", "shape", "group", "peak rate"], rows)


def _print_report(ledger: Any, plan: planning.Plan, instance: Instance) -> None:
    from lrurun import reading
    from lrurun.report import render

    made = reading.build(plan, instance, ledger)
    console.write(render.render(made, "table", width=console.width(), color=console.has_color()), styled=True)


def _remember(ledger: Any, instance: Instance, asked: Asked, plan: planning.Plan, seeds: Sequence[int]) -> None:
    """What was asked for, so that `lrurun resume` can ask for it again."""
    folder = paths.find("ablations", asked.ladder).parent
    own = {os.path.realpath(folder / file) for file in plan.ladder.load}
    used = {file for rung in plan.rungs for file in plugins.files_of(rung.config)} - own
    load = [file for file in plugins.given() if os.path.realpath(file) in used]
    table = {
        "task": _anywhere("recipes", asked.task),
        "ladder": _anywhere("ablations", asked.ladder),
        "profile": asked.profile,
        "rungs": asked.rungs,
        "seeds": ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else ""),
        "tune": asked.tune,
        "sets": asked.sets,
        **({"load": load} if load else {}),
    }
    text = jsonlib.dumps(table, sort_keys=True)
    if text not in _texts(ledger, instance):
        ledger.event(ASKED, text, ladder=instance.key)


def _texts(ledger: Any, instance: Instance) -> list[str]:
    return [event.text for event in ledger.events(ladder_key=instance.key) if event.kind == ASKED]


def _anywhere(kind: paths.Kind, name: str) -> str:
    path = paths.find(kind, name)
    return name if path.parent.resolve() == paths.packaged(kind).resolve() else os.path.abspath(path)


def _asked(ledger: Any, instance: Instance) -> list[Asked]:
    try:
        return [msgspec.json.decode(text, type=Asked) for text in _texts(ledger, instance)]
    except (msgspec.DecodeError, RecursionError) as error:
        raise LedgerError(
            f"ladder {instance.key}: what was asked for is not in the ledger as a command writes it ({error})",
            "type the ladder's command instead",
        ) from None


def _unfinished(ledger: Any, instance: Instance) -> bool:
    """Whether a run is left, or a tuned rung whose final runs were not yet asked for."""
    runs = ledger.runs(instance.key, brief=True)
    places = {(m.rung, m.stage) for run in runs for m in run.memberships if m.ladder_key == instance.key}
    awaited = any((rung, "train") not in places for rung, stage in places if stage == "tune")
    return awaited or any(run.state not in FINISHED for run in runs)


def _name_hidden(asked: Asked) -> None:
    for path in (paths.find("recipes", asked.task), paths.find("ablations", asked.ladder)):
        if paths.hides_packaged("recipes", path) or paths.hides_packaged("ablations", path):
            console.say(f"using {path}, which hides the packaged file of that name")
    ladder = catalog.read_ladder(asked.ladder)
    packaged = paths.packaged("ablations") / f"{ladder.name}.toml"
    own = paths.find("ablations", asked.ladder)
    if packaged.is_file() and own.resolve() != packaged.resolve() and own.stem != ladder.name:
        console.warn(
            f"{own} calls itself {ladder.name!r} as a packaged ladder does: one ledger keeps both as one ladder"
        )
