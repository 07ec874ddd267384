"""`lrurun check`: whether a ladder, a recipe, a recurrence, an optimiser, a study or a program is valid."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional, get_args

import typer
from msgspec import Struct

from lrurun import console, paths, studies, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, OnLadders, choice
from lrurun.commands._shared.rules import examples
from lrurun.console import setting
from lrurun.errors import LrurunError, UsageError, hint_for, nearest, plural
from lrurun.session.training_options import seconds_of

if TYPE_CHECKING:
    from lrurun.config.ladder import Ladder
    from lrurun.config.programs import ProgramTable
    from lrurun.config.recipe import Profile, Recipe
    from lrurun.config.resolve import ResolvedRung
    from lrurun.programs.trial import Trial


What = Literal["ladder", "recipe", "recurrence", "optimizer", "study", "program"]


class CheckResult(Struct, frozen=True):
    """The outcome of one check."""

    name: str
    check: str
    passed: bool
    detail: str
    warning: bool = False
    """Whether it passed with a warning, which `detail` gives."""
    recipes: list[str] = []
    """The recipes on which a ladder was found so."""


class CheckDocument(Struct, frozen=True):
    """The JSON of `lrurun check`."""

    findings: list[CheckResult]


@examples(
    "lrurun check ladder mine.toml",
    "lrurun check recurrence averages --load averages.py",
)
def check(
    what: Annotated[
        What,
        typer.Argument(
            help="ladder, recipe, recurrence, optimizer, study or program.", **choice("check", get_args(What))
        ),
    ],
    name: Annotated[Optional[str], typer.Argument(metavar="NAME|FILE", help="Its name, or a file.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Check all of them.")] = False,
    ladder: OnLadders = None,
    time_limit: Annotated[
        Optional[str],
        typer.Option("--time-limit", metavar="T", help="Of a program: end it after this time: 90 (seconds), 5m."),
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Say all of what is valid, too.")] = False,
    json: Json = False,
) -> int:
    """Check a ladder, recipe, recurrence, optimiser, study or program.

    Ladders and recipes are resolved against each other: a ladder on every recipe, a recipe on the ladders that it has
    values for, or on those that --ladder names. All that is missing or wrong in a recipe is listed at once; what is
    documentation in your own is only a warning. A recurrence has to pass the tests of the built-in ones: scan against
    step, gradients, padding, long sequences, initial variance; an optimiser, too: direction, state, checkpoints,
    compiled steps, groups of parameters. A study is computed in its quickest form, and not
    recorded. A program, named by its recipe, is started with the settings of the first rung and ended after its first
    scores; nothing is recorded. The exit code is 2 if a ladder or recipe is invalid, 1 if a recurrence or an
    optimiser fails a test or a program logs no scores, 3 if a check of a study fails.
    """
    from lrurun.config.ladder import read_ladder
    from lrurun.config.optimizers import OPTIMIZERS
    from lrurun.config.recurrences import KINDS

    names = {
        "ladder": lambda: list(paths.names("ablations")),
        "recipe": lambda: list(paths.names("recipes")),
        "recurrence": lambda: list(KINDS),
        "optimizer": lambda: list(OPTIMIZERS),
        "study": lambda: list(studies.names()),
        "program": list,
    }[what]()
    if what == "program" and (all_ or name is None):
        raise UsageError("check program: expected the file of its recipe", "as in lrurun check program mine.toml")
    if time_limit is not None and what != "program":
        raise UsageError(f"check {what}: --time-limit is for programs", "leave it out")
    if all_ == (name is not None):
        plural_of = "studies" if what == "study" else f"{what}s"
        raise UsageError(f"check {what}: expected a name, or --all", f"{plural_of}: {', '.join(names)}")
    if ladder and what not in ("recipe", "program"):
        raise UsageError(f"check {what}: --ladder is for recipes", "omit it")
    seconds = math.inf if time_limit is None else seconds_of(time_limit)
    chosen = names if all_ else [str(name)]
    checks: dict[str, Callable[[str], list[CheckResult]]] = {
        "ladder": partial(_check_ladder, details=details or json),
        "recipe": partial(_check_recipe, ladders=ladder or ()),
        "recurrence": _check_recurrence,
        "optimizer": _check_optimizer,
        "study": _check_study,
        "program": partial(_check_program, ladders=ladder or (), seconds=seconds),
    }
    findings: list[CheckResult] = []
    for name in chosen:
        if all_ and what == "ladder" and (files := read_ladder(name).load):
            detail = f"not checked: loads {', '.join(files)}; lrurun check ladder {name} does"
            findings.append(CheckResult(name, "the document", True, detail))
        else:
            findings += checks[what](name)
    if json:
        output.write_json(CheckDocument(findings))
    else:
        table.show_text(
            ["", what, "check", "detail"],
            [[_state(finding), finding.name, finding.check, finding.detail] for finding in findings],
            cut={"detail": 16},
            # what is wrong, of ladders all, and with --details everything
            below={
                "detail": lambda row: (
                    f"{row[1]}, {row[2]}" * (details or what in ("ladder", "program") or row[0] != "ok")
                )
            },
        )
    if all(finding.passed for finding in findings):
        return 0
    raise _failure(what, findings)


_NAMED = 8
"""How many recipes an error names."""


def _failure(what: str, findings: Sequence[CheckResult]) -> LrurunError:
    bad = [finding.name for finding in findings if not finding.passed]
    where = ", ".join(dict.fromkeys(bad))
    if what == "recipe":
        return UsageError(f"check recipe: {plural(len(bad), 'fault')} in {where}", "listed above")
    on = list(dict.fromkeys(recipe for finding in findings if not finding.passed for recipe in finding.recipes))
    if on:
        more = f" and {len(on) - _NAMED} more" if len(on) > _NAMED else ""
        return UsageError(
            f"check ladder: {where} fails on {', '.join(on[:_NAMED])}{more}",
            'the table above shows why; a ladder for some recipes names them: recipes = ["NAME", ...]',
        )
    of_code = dict.fromkeys(("recurrence", "optimizer", "program"), LrurunError)
    error_type = {**of_code, "study": ChecksFailed}.get(what, UsageError)
    return error_type(
        f"check {what}: {len(bad)} of {len(findings)} checks failed: {where}", "the table above shows which"
    )


def _state(finding: CheckResult) -> str:
    return "FAILED" if not finding.passed else "warning" if finding.warning else "ok"


class ChecksFailed(LrurunError):
    """Checks of a study failed."""

    exit_code = 3


def _check_ladder(name: str, *, details: bool) -> list[CheckResult]:
    """`details`: say what the rungs change on each recipe; otherwise, only which of them change nothing."""
    from lrurun.config import planning
    from lrurun.config.ladder import default_ladder, examine_ladder, load_plug_ins, rules

    ladder, faults = examine_ladder(name)
    errors: list[UsageError] = [*faults]
    if ladder is not None and not faults:
        load_plug_ins(ladder, name)
        errors += rules(ladder)
    if errors or ladder is None:
        return [CheckResult(name, "the document", False, text) for text in _texts(errors)]
    detail = f"{plural(len(ladder.rungs), 'rung')}, {plural(len(ladder.claims), 'claim')}"
    findings = [CheckResult(name, "the document", True, detail)]
    sound: dict[str, list[str]] = {}
    """What rungs change -> the recipes on which they do."""
    shared: dict[str, list[str]] = {}
    """A rung with the runs of its base -> the recipes on which it has those."""
    on_recipes: dict[str, dict[str, str]] = {}
    """Fault, without the file of the recipe -> each recipe on which it is one, with the whole sentence."""
    is_recipe = paths.is_path(name) and default_ladder(name) == name
    tasks = [name] if is_recipe else list(ladder.recipes or paths.names("recipes"))

    def where(recipes: Iterable[str]) -> str:
        """Where a finding holds, in words; `detailed` names the recipes if they are several, but not all."""
        names = list(recipes)
        if len(names) == 1:
            return f"on {names[0]}"
        everywhere = "on all its recipes" if ladder.recipes else "on every recipe"
        return everywhere if len(names) == len(tasks) else f"on {len(names)} recipes"

    def detailed(text: str, recipes: Iterable[str]) -> str:
        names = list(recipes)
        return text if len(names) in (1, len(tasks)) else f"{text}; on {', '.join(names)}"

    for task in tasks:
        try:
            made = planning.make(task, ladder=name)
        except UsageError as error:
            [text] = _texts([error])
            fault = text.replace(paths.shown(paths.find("recipes", task)), "the recipe")
            on_recipes.setdefault(fault, {})[task] = text
            continue
        changed = {rung.name: _changes(rung) for rung in made.rungs if rung.on is not None}
        sound.setdefault("; ".join(f"{rung}: {text}" for rung, text in changed.items()), []).append(task)
        for rung in made.rungs:
            if rung.same_as_base:
                shared.setdefault(f"{rung.name} shares the runs of {rung.on}", []).append(task)
    if details:
        for text, recipes in sound.items():
            findings.append(CheckResult(name, where(recipes), True, detailed(text, recipes)))
    elif sound:
        text = "; ".join(f"{text} on {', '.join(recipes)}" for text, recipes in shared.items())
        each = (
            "every rung has a condition" if any(rung.where for rung in ladder.rungs) else "every rung changes a setting"
        )
        recipes = [task for group in sound.values() for task in group]
        findings.append(CheckResult(name, where(recipes), True, text or each))
    # A ladder of the user's own that names no recipes need not be meant for those on which it cannot run.
    tolerated = not ladder.recipes and not ladder.is_packaged and len(findings) > 1
    for fault, texts in on_recipes.items():
        text = fault if len(texts) > 1 else next(iter(texts.values()))
        detail = detailed(text, texts)
        findings.append(CheckResult(name, where(texts), tolerated, detail, warning=tolerated, recipes=list(texts)))
    return findings


def _texts(errors: Iterable[UsageError]) -> list[str]:
    """A line for each error; one that several checks have found is listed once."""
    return list(dict.fromkeys(f"{error.message}; {error.hint}" if error.hint else error.message for error in errors))


def _changes(rung: ResolvedRung) -> str:
    """What a rung changes on a task."""
    if rung.same_as_base:
        return f"same settings as {rung.on} on this task, shares its runs"
    return ", ".join(difference.path for difference in rung.differences if not difference.is_default)


def _check_recipe(name: str, ladders: Sequence[str]) -> list[CheckResult]:
    """Checks the fields of a recipe, and its values on the ladders of these names.

    Without `ladders`, it is checked on those that it has values for.
    """
    from lrurun.config.planning import task_of
    from lrurun.config.recipe import examine_recipe, load_installed, rules

    recipe, faults, warnings = examine_recipe(name)
    errors: list[UsageError] = [*faults]
    if recipe is not None:
        for step in (load_installed, task_of):
            try:
                step(recipe)
            except UsageError as error:
                errors.append(error)
        errors += [*rules(recipe), *_data_faults(recipe)]
    fields = _texts(errors)
    findings = [CheckResult(name, "fields", False, text) for text in fields]
    findings += [CheckResult(name, "documentation", True, text, warning=True) for text in _texts(warnings)]
    if recipe is None:
        return findings
    known = {finding.detail for finding in findings}
    chosen, skipped = _ladders(recipe, name, ladders)
    for profile in (None, *recipe.profile):
        sound = all(finding.passed for finding in findings)
        detail, rare, first = _trained(recipe, profile, chosen) if sound else ("", "", [])
        errors = [*_own_faults(recipe, profile)]
        if first or not sound or not chosen:
            errors += _value_faults(recipe, profile, chosen)
        new = [text for text in _texts(errors or first) if text not in known]
        known.update(new)
        where = f"profile {profile or '(none)'}"
        findings += [CheckResult(name, where, False, text) for text in new]
        if sound and not new:
            findings.append(CheckResult(name, where, True, detail))
            findings += [CheckResult(name, where, True, text, warning=True) for text in [rare] if text]
    if all(finding.passed for finding in findings):
        findings.insert(0, CheckResult(name, "the document", True, f"checked: {recipe.about.checked}"))
    return findings + skipped


def _data_faults(recipe: Recipe) -> Iterator[UsageError]:
    """Yields the wrong settings of the data, in the recipe and in its profiles."""
    from lrurun import decoding
    from lrurun.config.planning import task_of

    try:
        task = task_of(recipe)
    except UsageError:
        return  # found before
    for name, data in (("", {}), *((f"profile.{name}.", profile.data) for name, profile in recipe.profile.items())):
        sources = dict.fromkeys(recipe.data, f"{recipe.path} [data]")
        sources |= dict.fromkeys(data, f"{recipe.path} [{name}data]")
        yield from decoding.examine(recipe.data | data, task.options, f"{recipe.path} [data]", sources)[1]


def _ladders(recipe: Recipe, name: str, names: Sequence[str]) -> tuple[list[Ladder], list[CheckResult]]:
    """The ladders to check the recipe on, and ladders of its own that cannot be checked."""
    from lrurun.config.ladder import default_ladder, load_ladder, read_ladder

    if not names and default_ladder(name) == str(paths.find("recipes", name)):  # one in the same file
        names = [default_ladder(name)]
    if names:
        return [load_ladder(ladder) for ladder in names], []
    values: list[Recipe | Profile] = [recipe, *recipe.profile.values()]
    named = dict.fromkeys(ladder for document in values for ladder in document.ladder)
    chosen: list[Ladder] = []
    skipped: list[CheckResult] = []
    known = paths.names("ablations")
    for ladder in named:
        if ladder not in known:
            close = nearest(ladder, known)
            detail = f"not checked: there is no ladder {ladder!r} here" + (
                f", did you mean {close!r}?" if close else ""
            )
            detail = f"{detail}; --ladder PATH.toml checks one"
        elif files := read_ladder(ladder).load:
            detail = f"not checked: loads {', '.join(files)}; --ladder {ladder} does"
        else:
            chosen.append(load_ladder(ladder))
            continue
        skipped.append(CheckResult(name, f"on {ladder}", True, detail, warning=True))
    if not named:
        detail = "not checked: the recipe has values for none; --ladder NAME checks one"
        skipped.append(CheckResult(name, "ladders", True, detail, warning=True))
    return chosen, skipped


def _value_faults(recipe: Recipe, profile: str | None, ladders: Sequence[Ladder]) -> Iterator[UsageError]:
    """Yields missing and wrong values on the rungs of these ladders; without ladders, in the recipe alone."""
    from lrurun.config import precedence, resolve
    from lrurun.config.recipe import check_scopes

    if not ladders:
        yield from resolve.value_faults(precedence.shared_values(recipe, profile), recipe)
    for ladder in ladders:
        try:
            check_scopes(ladder, recipe)
        except UsageError as error:
            yield error
        for rung in precedence.unresolved_rungs(ladder, recipe, profile, {}):
            yield from rung.faults
            yield from resolve.value_faults(rung.values, recipe)
            yield from resolve.grid_faults(rung, recipe)


def _own_faults(recipe: Recipe, profile: str | None) -> Iterator[UsageError]:
    """Yields wrong values of the recipe, also those in whose place every rung has another one."""
    from lrurun.config import precedence, resolve

    values = precedence.shared_values(recipe, profile)
    for fault in resolve.value_faults(values, recipe):
        if fault.path.partition("[")[0] in values:  # not a rule between values, which rungs may change
            yield fault


def _trained(recipe: Recipe, profile: str | None, ladders: Sequence[Ladder]) -> tuple[str, str, list[UsageError]]:
    """What a profile trains, with a warning where it validates only once; or the first error, also of rules between
    values."""
    from lrurun.config import planning

    counts: list[str] = []
    length = rare = ""
    try:
        for ladder in ladders:
            made = planning.of_documents(ladder, recipe, profile=profile, sets={}, tune=False)
            counts.append(f"{plural(len(made.rungs), 'rung')} of ladder {ladder.name}")
            first = made.rungs[0]
            steps = f", {plural(first.steps, 'step')}" if first.steps else ""
            length = f"{steps}, {plural(made.seeds, 'seed')}" if made.is_trained_here else ""
            if made.kind == "training" and first.training.train.eval_every > first.steps:
                train = first.training.train
                rare = f"validated once: train.eval_every = {train.eval_every}, of {plural(train.steps, 'step')}"
    except UsageError as error:
        return "", "", [error]
    return (", ".join(counts) or "its values") + length, rare, []


def _check_recurrence(name: str) -> list[CheckResult]:
    from lrurun import plugins
    from lrurun.config.recurrences import KINDS

    plugins.load_installed("recurrence", name)
    _check_known(name, KINDS, "recurrence")
    from lrurun.nn import conformance

    findings = []
    if KINDS[name].variants:
        unvaried = conformance.unvaried(name)
        detail = f"none changes: {', '.join(unvaried)}" if unvaried else "change every setting, have every choice"
        findings.append(CheckResult(name, "variants", not unvaried, detail))
    for label, settings in conformance.variants(name).items():
        console.say(f"checking {label}")  # each takes seconds, most of them to compile
        for finding in conformance.check(settings):
            findings.append(CheckResult(label, finding.name, finding.passed, finding.detail))
    return findings


def _check_optimizer(name: str) -> list[CheckResult]:
    from lrurun import plugins
    from lrurun.config.optimizers import OPTIMIZERS

    plugins.load_installed("optimizer", name)
    _check_known(name, OPTIMIZERS, "optimizer")
    from lrurun.training import conformance

    try:
        variants = conformance.variants(name)
    except ValueError as error:
        return [CheckResult(name, "settings", False, f"its rules refuse all that were tried: {error}")]
    findings = []
    for label, settings in variants.items():
        console.say(f"checking {label}")
        for finding in conformance.check(settings):
            findings.append(CheckResult(label, finding.name, finding.passed, finding.detail))
    return findings


def _check_known(name: str, known: Iterable[str], what: str) -> None:
    """Raises UsageError for a name that is not registered."""
    if name not in known:
        file = f"{name}.py"
        listing = hint_for(name, list(known), f"{what}s") + "; one of your own: --load FILE"
        raise UsageError(f"unknown {what} {name!r}", f"--load {file}" if Path(file).is_file() else listing)


def _check_study(name: str) -> list[CheckResult]:
    from lrurun.studies.machinery import execution, planning

    study = studies.get(name)
    return [
        CheckResult(
            study.name,
            check.name,
            check.passed,
            f"{check.kind}: measured {check.measured:.6g}, expected {check.expected:.6g}, {check.rule}",
        )
        for check in study.checks(execution.in_process(planning.make(study, "ci", {})))
    ]


def _check_program(name: str, *, ladders: Sequence[str], seconds: float) -> list[CheckResult]:
    """Tries the program of the recipe in this file, with the settings of the first rung of its ladder and seed 0."""
    from lrurun.config import planning
    from lrurun.config.programs import paths_of, steps_of
    from lrurun.config.schema import ProgramConfig
    from lrurun.programs.trial import try_out
    from lrurun.runner.program_faults import check_command

    if len(ladders) > 1:
        raise UsageError("check program: expected one --ladder at most", "name the one whose first rung is tried")
    plan = planning.make(name, ladder=next(iter(ladders), None))
    rung, program = plan.rungs[0], plan.recipe.program
    if program is None or not isinstance(rung.config, ProgramConfig):
        instead = "trains a model of lrurun" if plan.is_trained_here else "its runs were imported"
        raise UsageError(
            f"{name}: its recipe has no [program], and {instead}",
            f"lrurun check recipe {name} checks it",
        )
    check_command([rung], plan.recipe.folder, name)
    count = steps_of(program, rung.config)
    console.say(f"starting the program of rung {rung.name}, seed 0; ^C ends it")
    with tempfile.TemporaryDirectory(prefix="lrurun-check-") as folder:
        runs = Path(folder).resolve()
        trial = try_out(rung.config, rung.execution, program, plan.recipe.folder, runs, seconds)
        shown = " ".join(trial.command).replace(str(Path(folder).resolve()), "FOLDER")
    given = ", ".join(
        f"{path.partition('.')[2]} = {setting(value)}" for path, value in paths_of(rung.config.settings).items()
    )
    findings = [
        CheckResult(name, "command", not trial.problem, f"{shown}: {trial.problem or trial.end}"),
        CheckResult(name, "settings", True, given or "none"),
        *_scores_found(name, trial, program),
        *_items_found(name, trial, program),
        *_others_found(name, trial, program),
    ]
    first = min((step for step, _ in trial.rows), default=0)
    if count and first > count:
        text = f"{count} by the recipe, and the first one that was logged is {first}"
        findings.append(CheckResult(name, "steps", True, text, warning=True))
    if trial.problem or not all(finding.passed for finding in findings):
        lines = [line for line in trial.printed if line.strip()][-LINES_PRINTED:]
        findings.append(CheckResult(name, "printed", True, " | ".join(lines) or "nothing"))
    return findings


LINES_PRINTED = 5
"""How many of the lines that a program has printed are shown when it logs no scores."""


def _scores_found(name: str, trial: Trial, program: ProgramTable) -> Iterator[CheckResult]:
    """What a trial of a program has shown of the scores that are compared."""
    from lrurun.config.programs import line_to_add

    metric, test = program.metric, f"test/{program.name}"
    logged = list(dict.fromkeys(metric for _, values in trial.rows for metric in values))
    line = line_to_add(metric)
    for wanted in (metric, test):
        if found := trial.steps_of(wanted):
            values = ", ".join(f"{value:.6g} at step {step}" for step, value in list(found.items())[:3])
            is_usable = any(map(math.isfinite, found.values()))
            more = "" if is_usable else "; a run without a finite one ranks below all others"
            if program.unit == "%" and any(1 < abs(value) < math.inf for value in found.values()):
                more += '; with unit = "%" scores are fractions, which are printed in per cent'
            yield CheckResult(name, wanted, True, values + more, warning=bool(more))
            continue
        if trial.problem:
            continue  # which is to be corrected first
        if wanted == test and trial.is_cut and metric in logged:
            text = f"not logged yet: log it at the steps of {metric}, or once"
            yield CheckResult(name, wanted, True, text, warning=True)
            continue
        if wanted in program.read:
            advice = f"no printed line matches {program.read[wanted]!r}"
        elif program.read:
            advice = f"add a pattern for it to read in [program], or the line {line}"
        else:
            advice = f"add the line {line}, with run = lrurun.this_run()"
        seen = f"; logged were {', '.join(logged)}" if logged else ""
        yield CheckResult(name, wanted, False, f"not logged{seen}: {advice}")


def _items_found(name: str, trial: Trial, program: ProgramTable) -> Iterator[CheckResult]:
    """What a trial of a program has shown of per-item results."""
    test = f"test/{program.name}"
    for score in dict.fromkeys(items.name for items in trial.items):
        scores = trial.steps_of(score)
        found = [items for items in trial.items if items.name == score]
        counts = list(dict.fromkeys(items.count for items in found))
        listed = ", ".join(f"{items.mean:.6g} at step {items.step}" for items in found)
        number = f"{' or '.join(f'{count:,}' for count in counts)} items"
        if problem := next((f"step {items.step}: {items.problem}" for items in found if items.problem), None):
            yield CheckResult(name, f"items of {score}", False, problem)
            continue
        if not score.startswith("test"):
            wrong = f"{score} is no test score, and its items are left out: name one, as in {test}"
            yield CheckResult(name, f"items of {score}", False, wrong)
            continue
        if len(counts) > 1:
            text = f"{number}, with the mean {listed}: log the same items at every step"
            yield CheckResult(name, f"items of {score}", False, text)
            continue
        is_scored = any(items.step in scores for items in found)
        text = f"{number}, whose mean is the score: {listed}"
        if not is_scored:
            text = f"{number}, with the mean {listed}; no {score} was logged at this step yet"
        yield CheckResult(name, f"items of {score}", True, text, warning=not is_scored)
    if trial.problem or not trial.steps_of(test) or any(items.name == test for items in trial.items):
        return
    line = f'run.log_items("{test}", values)'
    if program.test_items is not None:
        text = f"no per-item results; test_items = {program.test_items} bounds how far a share moves with the test set"
        text = text if program.is_share else f"no per-item results, and {test} is no share: add the line {line}"
        yield CheckResult(name, f"items of {test}", True, text, warning=not program.is_share)
        return
    advice = f"add the line {line}" + ", if the score is a mean over them" * (not program.is_share)
    if test in program.read and program.is_share:
        advice = "write test_items = N into [program]"
    text = f"no per-item results: verdicts will be about these test items; {advice}"
    yield CheckResult(name, f"items of {test}", True, text, warning=True)


def _others_found(name: str, trial: Trial, program: ProgramTable) -> Iterator[CheckResult]:
    """The other metrics that a trial of a program has shown, and patterns that have found nothing."""
    from lrurun.config.programs import STEP

    scores = (program.metric, f"test/{program.name}")
    logged = dict.fromkeys(metric for _, values in trial.rows for metric in values if metric not in scores)
    if logged:
        yield CheckResult(name, "other metrics", True, ", ".join(logged))
    for metric, pattern in program.read.items():
        if metric != STEP and metric not in scores and metric not in logged:
            yield CheckResult(name, metric, True, f"no printed line matches {pattern!r}", warning=True)
    if STEP in program.read and trial.rows and max(step for step, _ in trial.rows) == 0:
        yield CheckResult(name, STEP, True, f"no printed line matches {program.read[STEP]!r}", warning=True)
