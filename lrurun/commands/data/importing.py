"""`lrurun data import`: a task and a recipe from a user's own arrays."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from msgspec import structs

from lrurun import console, files, paths, plugins
from lrurun.commands._shared.options import number
from lrurun.commands._shared.rules import examples, exclusive, needs
from lrurun.errors import LrurunError, Stopped, UsageError, plural

if TYPE_CHECKING:
    from lrurun.config.ladder import Ladder, Rung
    from lrurun.data.own_array_task import OwnArrayTask
    from lrurun.data.own_arrays import NewTask
    from lrurun.data.task import Progress
    from lrurun.paths import Places

_SHORT = 100
"""Steps of a sequence: up to this length, the ring of initial eigenvalues is as in sDigits."""
_EPOCHS, _FEWEST, _MOST = 50, 500, 5000
"""Training takes this many epochs, within limits on the number of steps."""
_RATES = [0.002, 0.004, 0.008, 0.016, 0.032]
_WIDTH = 32
"""Width and state of the model. The profile smoke has the same, so that the values of rungs hold for it, too."""
_FEW, _MANY = 64, 256
"""The least and the largest number of states of the rungs that ask whether many are needed."""

_OURS = {
    "model.depth": "two blocks train quickly and still distinguish the rungs",
    "model.width": "small enough for a laptop",
    "model.state": "equal to the width; real: twice the numbers, which take the memory of complex ones; states: dlr "
    f"has the number of steps, with which it can express any kernel, at least {_FEW} and at most {_MANY}, "
    "few-states an eighth of that",
    "model.recurrence.r_min": f"0.5 up to {_SHORT} steps, for a memory of tens of them; else 0.9, for hundreds",
    "model.recurrence.r_max": f"0.99 up to {_SHORT} steps, else 0.999; of a rung without r_min: the whole disk",
    "model.recurrence.max_phase": "pi/10 where the phase is the change, as on the paper's PathX; else the whole circle",
    "model.recurrence.dt_min": "the published range of most tasks, 0.001 to 0.1",
    "model.recurrence.n_ssm": "one A per channel",
    "model.recurrence.heads": "8 numbers per head",
    "model.recurrence.blocks": "the number of heads",
    "model.recurrence.c_init": "the initialisation whose scale does not depend on the width",
    "optim.lr": "untuned: --tune chooses one for each rung on validation",
    "optim.recurrent_factor": "the largest of the LRU paper's values, 0.1 to 0.5, because training is short",
    "optim.weight_decay": "the LRU paper's on most tasks",
    "train.steps": f"{_EPOCHS} epochs, at least {_FEWEST} steps and at most {_MOST}",
    "train.batch": "small, for many steps in little time",
}


VALIDATION, TEST = 0.1, 0.1
"""Fractions of the examples, by default."""
LONGEST_NAME = 100


def _file(name: str, help_: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar="FILE", help=help_)
    return option


@examples(
    "lrurun data import mine --inputs X.npy --labels Y.npy",
    "lrurun data import mine --inputs arrays.npz:X --labels arrays.npz:Y --test 0.2",
)
@exclusive("test", "test_inputs", hint="the arrays of --test-inputs are the test split")
@needs("test_inputs", "test_labels")
@needs("test_labels", "test_inputs")
@needs("test_lengths", "test_inputs")
@needs("test_groups", "test_inputs")
def import_(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new task.")],
    inputs: Annotated[Path, _file("--inputs", "(n, steps) or (n, steps, features) numbers.")],
    labels: Annotated[
        Path, _file("--labels", "(n,) or (n, positions) classes, or (n, values), (n, positions, values) real numbers.")
    ],
    lengths: Annotated[Optional[Path], _file("--lengths", "(n,) real steps of each example [all].")] = None,
    groups: Annotated[
        Optional[Path],
        _file("--groups", "(n,) the group of each example, such as its speaker: a group is in one split."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Inputs are ids, with 0 for padding.")] = False,
    classes: Annotated[
        Optional[int],
        typer.Option(
            "--classes",
            metavar="N",
            help="Number of classes, if some do not occur [as in the labels].",
            **number("--classes", int, 2, 1_000_000, example=10),
        ),
    ] = None,
    test_inputs: Annotated[Optional[Path], _file("--test-inputs", "Inputs of a separate test split.")] = None,
    test_labels: Annotated[Optional[Path], _file("--test-labels", "Their labels.")] = None,
    test_lengths: Annotated[Optional[Path], _file("--test-lengths", "Their lengths.")] = None,
    test_groups: Annotated[Optional[Path], _file("--test-groups", "Their groups.")] = None,
    validation: Annotated[
        float,
        typer.Option(
            "--validation",
            metavar="SHARE",
            help="Share of the examples for validation.",
            **number("--validation", float, 0, 1, example=0.1),
        ),
    ] = VALIDATION,
    test: Annotated[
        Optional[float],
        typer.Option(
            "--test",
            metavar="SHARE",
            help=f"Share of the examples for the test [{TEST}].",
            **number("--test", float, 0, 1, example=0.1),
        ),
    ] = None,
    stratify: Annotated[
        Optional[bool],
        typer.Option(
            "--stratify/--no-stratify",
            help="Whether splits have the classes in proportion [yes, where an example has one class].",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", help="Seed of the split.", **number("--seed", int, 0, example=0))
    ] = 0,
    recipe: Annotated[
        Optional[Path], typer.Option("--recipe", metavar="FILE", help="Where to write the recipe [recipes/NAME.toml].")
    ] = None,
) -> int:
    """Make a task and a recipe from your own arrays.

    Examples are divided at random, with the classes in proportion; groups stay together. The arrays are checked and
    copied into the data folder. The recipe is a beginning: lrurun ladder NAME trains it. Importing the same arrays
    again changes nothing. Runs that were made elsewhere: lrurun import.
    """
    from lrurun.data import task_data
    from lrurun.data.own_arrays import Division, doubts, no_strata, read, task_of

    places: Places = context.obj.places
    _check_name(name)
    target = _target(name, recipe)
    if groups is not None and test_inputs is not None and test_groups is None:
        raise UsageError(
            "--groups: the test split has arrays of its own, and no groups", "name them: --test-groups FILE"
        )
    division = Division(
        validation=validation, test=None if test_inputs is not None else TEST if test is None else test, seed=seed
    )
    try:
        with _progress() as progress:
            progress("checking the arrays", 0, None)
            of_test = None
            if test_inputs is not None and test_labels is not None:
                of_test = read(test_inputs, test_labels, test_lengths, test_groups, prefix="--test-", tokens=tokens)
            arrays = read(inputs, labels, lengths, groups, tokens=tokens)
            reason = no_strata(arrays)
            if stratify and reason is not None:
                raise LrurunError(f"--stratify: {reason}", "leave --stratify out")

            def made(*, stratified: bool) -> NewTask:
                chosen = structs.replace(division, stratify=stratified)
                return task_of(name, arrays, of_test, chosen, classes=classes, progress=progress)

            new = made(stratified=reason is None if stratify is None else stratify)
            kept = False
            if stratify is None and reason is None and _differs(new.task, places, target):
                earlier = made(stratified=False)  # the split of lrurun 1.0
                if kept := not _differs(earlier.task, places, target):
                    new = earlier
            task = new.task
            unchanged = _write(task, places, target, context.obj.arguments, progress)
    except Stopped as stopped:
        console.say(f"stopped by {stopped}; no data were imported; the same command imports them")
        return stopped.exit_code
    _report(new, places, target, unchanged)
    if kept:
        console.say(
            "the split is the one that was there already, without classes in proportion; "
            "for those, import the arrays under another NAME"
        )
    manifest = task_data.manifest(task, task.facts, places.data / task.name)
    for doubt in [*doubts(arrays), *(manifest.notes if manifest else ())]:
        console.warn(doubt)
    if few := task.few_items(new.groups):
        console.warn(few + ("; --test SHARE changes how many there are" if of_test is None else ""))
    return 0


def _check_name(name: str) -> None:
    """Refuse a name that is no file name, or that a task has.

    Raises:
        UsageError: with the reason.
    """
    from lrurun.config.ladder import NAME
    from lrurun.data import tasks

    if not re.fullmatch(NAME, name, re.ASCII) or len(name) > LONGEST_NAME or name.endswith(".toml"):
        hint = f"at most {LONGEST_NAME} letters, digits, '.', '_' and '-', as in lrurun data import wells"
        raise UsageError(f"NAME: {name!r} cannot be the name of a task and its files", hint)
    packaged = [path.stem for path in paths.packaged("recipes").glob("*.toml")]
    for known in dict.fromkeys([*tasks.TASKS, *packaged, *plugins.installed_names()]):
        if name.lower() == known.lower() or name.startswith(f"{known}-"):
            raise UsageError(f"NAME: {name!r} is taken by the data of task {known}", "choose another name")
    if name.lower() == "downloads":
        raise UsageError(f"NAME: {name!r} is a folder of the data folder", "choose another name")


def _target(name: str, recipe: Path | None) -> Path:
    """The path at which the recipe is, or will be written.

    Raises:
        LrurunError: nothing can be written there.
    """
    target = Path("recipes") / f"{name}.toml" if recipe is None else recipe
    if target.suffix != ".toml":
        raise UsageError(f"--recipe {target}: expected a .toml file", f"as in --recipe {name}.toml")
    if recipe is not None and not target.parent.is_dir():
        raise LrurunError(f"--recipe {target}: there is no folder {target.parent}", "create it, or name another one")
    if target.exists() and not target.is_file():
        raise LrurunError(f"{target}: exists, and is not a file", "name another one: --recipe FILE")
    return target


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Shows progress, and raises Stopped at the first call after a signal."""
    from lrurun.report.live.views import PreparationView
    from lrurun.runner.signals import Signals

    signals = Signals()
    with signals.recorded(), PreparationView() as view:

        def progress(what: str, done: int, total: int | None) -> None:
            view.update(what, done, total)
            signals.check()

        yield progress


def _write(
    task: OwnArrayTask, places: Places, target: Path, arguments: tuple[str, ...], progress: Progress
) -> list[Path]:
    """Writes the data and the recipe; returns those that were there already. Both appear, or neither.

    Raises:
        LrurunError: there are other arrays of this name, or a recipe of other arrays; nothing can be written.
    """
    from lrurun.data import task_data

    folder = places.data / task.name
    unchanged = [folder] if _has_data(task, folder) else []
    if target.exists():
        _check_same(task, target)
        task_data.prepare(task, task.facts, folder, progress=progress)
        return [*unchanged, target]
    new = not target.parent.exists()
    try:
        target.parent.mkdir(exist_ok=True)
        with files.atomic(target, target.with_name(f".{target.name}.partial")) as partial:
            partial.write_text(_recipe_text(task, shlex.join(["lrurun", *arguments])), encoding="utf-8")
            task_data.prepare(task, task.facts, folder, progress=progress)
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror}", "choose another file with --recipe") from None
    finally:
        if new:
            with contextlib.suppress(OSError):
                os.rmdir(target.parent)  # succeeds only while it is empty
    return unchanged


def _differs(task: OwnArrayTask, places: Places, target: Path) -> bool:
    """Whether the data folder or the recipe has other arrays under this name, or another split."""
    try:
        _has_data(task, places.data / task.name)
        if target.exists():
            _check_same(task, target)
    except LrurunError:
        return True
    return False


def _has_data(task: OwnArrayTask, folder: Path) -> bool:
    """Whether the data folder has these arrays.

    Raises:
        LrurunError: it has others under this name.
    """
    from lrurun.data import task_data

    try:
        return task_data.manifest(task, task.facts, folder) is not None
    except LrurunError as error:
        raise LrurunError(
            f"{folder}: exists, but does not have these arrays in this split; it was not changed",
            "choose another NAME, or another folder with --data-dir; or remove this one, if no run needs it",
        ) from error


def _check_same(task: OwnArrayTask, target: Path) -> None:
    """Refuse a recipe that is not of these arrays.

    Raises:
        LrurunError: it is of others.
    """
    from lrurun.config.recipe import read_recipe
    from lrurun.decoding import canonical

    recipe = read_recipe(str(target))
    if recipe.task != task.name or recipe.data != canonical(task.facts):
        subject = f"of task {recipe.task}" if recipe.task != task.name else "of other arrays, or of another split"
        raise LrurunError(
            f"{target}: exists, and is a recipe {subject}; it was not changed",
            "choose another NAME, or another file with --recipe; or remove it first",
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _report(new: NewTask, places: Places, target: Path, unchanged: Sequence[Path]) -> None:
    task, facts = new.task, new.task.facts
    shape = _counted(facts.length, "step")
    if facts.kind == "features":
        shape += f" of {_counted(facts.features, 'feature')}"
    counts = ", ".join(f"{split} {count:,}" for split, count in task.sizes(facts).items())
    console.write(f"{places.data / task.name}: {task.title}; {shape}; {counts}")
    console.write(f"split: {'; '.join(_split(new))}")
    if facts.loss == "squared-error":
        console.say("the labels are real numbers: a regression, scored by R²; classes are whole numbers")
    if unchanged:
        verb = "was" if len(unchanged) == 1 else "were"
        console.say(f"{' and '.join(map(str, unchanged))} {verb} there already, and not changed")
    if target in unchanged:
        return
    named = task.name if target == Path("recipes") / f"{task.name}.toml" else str(target)
    console.write(f"{target}: a recipe to begin with; train it with: lrurun ladder {named}")


def _split(new: NewTask) -> Iterator[str]:
    """How the examples were divided, and what the splits have of classes and groups."""
    yield new.divided
    if new.groups is not None:
        yield f"the test items are of {plural(len(new.groups), 'group')}"
    if new.fewest is not None:
        noun = "labels of each class" if new.task.facts.at == "positions" else "examples of each class"
        yield f"{noun}, at least: " + ", ".join(f"{split} {number:,}" for split, number in new.fewest.items())


def _recipe_text(task: OwnArrayTask, command: str) -> str:
    """The recipe of a task of imported arrays; `command` imports them."""
    from lrurun.config.settings import toml_value
    from lrurun.decoding import canonical

    facts = canonical(task.facts)
    batch = max(2, min(64, facts["train"]))  # controls need another sequence in the batch
    steps = min(_MOST, max(_FEWEST, _EPOCHS * facts["train"] // batch))
    tables: dict[str, dict[str, Any]] = {
        "about": {
            "source": "ours: imported arrays, of which no paper has results",
            "expect": "not known yet",
            "device": "two CPU cores",
            "hours": 0,
            "checked": "never",
        },
        "data": facts,
        "model": {"depth": 2, "width": _WIDTH, "state": _WIDTH, "norm": "batch", "glu": "full", "dropout": 0.0},
        "optim": {"lr": 0.008, "recurrent_factor": 0.5, "weight_decay": 0.05},
        "train": {"steps": steps, "batch": batch, "eval_every": steps // 10, "log_every": 10},
        "execution": {"threads": 1, "steps_per_dispatch": 50},
        "ours": {f'"{path}"': reason for path, reason in _OURS.items()},
        **dict(_expected(facts["length"])),
        "tune.grid": {'"optim.lr"': _RATES},
        "profile.smoke": {"why": "the whole pipeline in well under a minute; the scores mean nothing", "seeds": 1},
        "profile.smoke.model": {"depth": 1},
        "profile.smoke.train": {"steps": 60, "batch": min(32, batch), "eval_every": 30, "log_every": 10},
        "profile.smoke.execution": {"steps_per_dispatch": 10},
        "profile.smoke.tune": {'"optim.lr"': [0.004, 0.016]},
    }
    head = [
        f"# {task.title}. Written by: {command}",
        "# [data] describes the arrays: import them again to change it. All other values are yours to change.",
        f"task = {toml_value(task.name)}",
        "seeds = 3",
    ]
    return "\n\n".join(["\n".join(head), *(_table(name, values) for name, values in tables.items())]) + "\n"


def _table(name: str, values: dict[str, Any]) -> str:
    from lrurun.config.settings import toml_value

    return "\n".join([f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in values.items())])


def _expected(length: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables and values that the packaged ladders expect from a recipe."""
    from lrurun.config.ladder import read_ladder

    for path in sorted(paths.packaged("ablations").glob("*.toml")):
        ladder = read_ladder(str(path))
        for rung in ladder.rungs:
            if values := _values(ladder, rung, length):
                yield f"ladder.{ladder.name}.rung.{rung.name}", values


def _values(ladder: Ladder, rung: Rung, length: int) -> dict[str, Any]:
    """The values that a rung expects from its recipe, without those that it takes from other rungs."""
    from lrurun.config.ladder import read_ladder

    taken: set[str] = set()
    for scope in ladder.scopes(rung)[:-1]:
        source = ladder if scope.ladder == ladder.name else read_ladder(scope.ladder)
        taken.update(*(source_rung.tunes for source_rung in source.rungs if source_rung.name == scope.rung))
    ring = (0.5, 0.99) if length <= _SHORT else (0.9, 0.999)
    states = min(max(length, _FEW), _MANY)
    known = {
        "model.state": {"real": 2 * _WIDTH, "dlr": states, "few-states": states // 8}.get(rung.name, _WIDTH),
        "model.recurrence.r_min": ring[0],
        "model.recurrence.r_max": ring[1] if "model.recurrence.r_min" in rung.tunes else 1.0,
        # a rung that tunes nothing else is about the phase; others have the whole circle
        "model.recurrence.max_phase": 0.3141592653589793 if len(rung.tunes) == 1 else 6.283185307179586,
        "model.recurrence.dt_min": 0.001,
        "model.recurrence.dt_max": 0.1,
        "model.recurrence.n_ssm": 0,
        "model.recurrence.heads": 4,
        "model.recurrence.blocks": 4,
        "model.recurrence.c_init": "truncated",
    }
    return {path: known[path] for path in rung.tunes if path not in taken}
