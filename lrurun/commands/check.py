"""`lrurun check`: whether a ladder, a recipe, a recurrence or a study is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer
from msgspec import Struct

from lrurun import console, paths
from lrurun.commands import output
from lrurun.commands.options import Json, choice
from lrurun.errors import LrurunError, UsageError, hint_for, plural

if TYPE_CHECKING:
    from lrurun.config.resolve import ResolvedRung


class CheckResult(Struct, frozen=True):
    """The outcome of one check."""

    name: str
    check: str
    passed: bool
    detail: str


class CheckDocument(Struct, frozen=True):
    """The JSON of `lrurun check`."""

    findings: list[CheckResult]


def check(
    what: Annotated[
        Literal["ladder", "recipe", "recurrence", "study"],
        typer.Argument(
            help="ladder, recipe, recurrence or study.", **choice("check", ("ladder", "recipe", "recurrence", "study"))
        ),
    ],
    name: Annotated[Optional[str], typer.Argument(metavar="NAME|FILE", help="Its name, or a file.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Check all of them.")] = False,
    json: Json = False,
) -> int:
    """Check a ladder, a recipe, a recurrence or a study.

    Ladders and recipes are resolved against each other. A recurrence has to pass the tests of the built-in ones: scan
    against step, gradients, padding, long sequences, initial variance. A study is computed in its quickest form, and
    not recorded. The exit code is 2 if a ladder or recipe is invalid, 1 if a recurrence fails a test, 3 if a check of
    a study fails.
    """
    from lrurun import studies
    from lrurun.config import documents
    from lrurun.config.recurrences import KINDS

    names = {
        "ladder": lambda: list(paths.names("ablations")),
        "recipe": lambda: list(paths.names("recipes")),
        "recurrence": lambda: list(KINDS),
        "study": lambda: list(studies.names()),
    }[what]()
    if all_ == (name is not None):
        plural_of = "studies" if what == "study" else f"{what}s"
        raise UsageError(f"check {what}: expected a name, or --all", f"{plural_of}: {', '.join(names)}")
    chosen = names if all_ else [str(name)]
    check_one = {
        "ladder": _check_ladder,
        "recipe": _check_recipe,
        "recurrence": _check_recurrence,
        "study": _check_study,
    }[what]
    findings: list[CheckResult] = []
    for one in chosen:
        if all_ and what == "ladder" and (files := documents.read_ladder(one).load):
            detail = f"not checked: loads {', '.join(files)}; lrurun check ladder {one} does"
            findings.append(CheckResult(one, "the document", True, detail))
        else:
            findings += check_one(one)
    if json:
        output.write_json(CheckDocument(findings))
    else:
        rows = [["ok" if f.passed else "FAILED", f.name, f.check, f.detail] for f in findings]
        console.table(None, ["", what, "check", "detail"], rows)
    if all(finding.passed for finding in findings):
        return 0
    bad = [f.name for f in findings if not f.passed]
    kind = {"recurrence": LrurunError, "study": ChecksFailed}.get(what, UsageError)
    raise kind(
        f"check {what}: {len(bad)} of {len(findings)} checks failed: {', '.join(dict.fromkeys(bad))}",
        "the table above shows which",
    )


class ChecksFailed(LrurunError):
    """Checks of a study failed."""

    exit_code = 3


def _check_ladder(name: str) -> list[CheckResult]:
    from lrurun.config import documents
    from lrurun.config import plan as planning

    ladder = documents.load_ladder(name)
    detail = f"{plural(len(ladder.rungs), 'rung')}, {plural(len(ladder.claims), 'claim')}"
    findings = [CheckResult(name, "the document", True, detail)]
    for task in ladder.recipes or paths.names("recipes"):
        try:
            made = planning.make(task, ladder=name)
        except UsageError as error:
            findings.append(CheckResult(name, f"on {task}", False, f"{error.message}; {error.hint}"))
            continue
        changed = {rung.name: _changes(rung) for rung in made.rungs if rung.on is not None}
        detail = "; ".join(f"{rung}: {text}" for rung, text in changed.items())
        findings.append(CheckResult(name, f"on {task}", True, detail))
    return findings


def _changes(rung: ResolvedRung) -> str:
    """What a rung changes on a task."""
    if rung.same_as_base:
        return f"same settings as {rung.on} on this task, shares its runs"
    return ", ".join(one.path for one in rung.differences)


def _check_recipe(name: str) -> list[CheckResult]:
    from lrurun import data as tasks
    from lrurun.config import documents
    from lrurun.config import plan as planning
    from lrurun.config.schema import known_paths

    recipe = documents.load_recipe(name)
    tasks.get(recipe.task, recipe.data, f"{recipe.path} [data]")
    findings = [CheckResult(name, "the document", True, f"checked: {recipe.about.checked}")]
    known = {rung.name for ladder in map(documents.read_ladder, paths.names("ablations")) for rung in ladder.rungs}
    for rung in [*recipe.rung, *(r for p in recipe.profile.values() for r in p.rung)]:
        if rung not in known:
            detail = f"[rung.{rung}] is in no ladder; " + hint_for(rung, sorted(known), "rungs")
            findings.append(CheckResult(name, "rung tables", False, detail))
    for profile in [None, *recipe.profile]:
        made = planning.make(name, profile=profile)
        train = made.rungs[0].config.train
        counts = f"{plural(train.steps, 'step')}, {plural(made.seeds, 'seed')}"
        detail = f"{plural(len(made.rungs), 'rung')} of ladder {made.ladder.name}, {counts}"
        findings.append(CheckResult(name, f"profile {profile or '(none)'}", True, detail))
    for path in recipe.ours:
        if path not in known_paths():
            detail = f"[ours] {path}: unknown path; " + hint_for(path, known_paths(), "paths")
            findings.append(CheckResult(name, "[ours]", False, detail))
    return findings


def _check_recurrence(name: str) -> list[CheckResult]:
    from lrurun import plugins
    from lrurun.config.recurrences import KINDS

    plugins.load_installed("recurrence", name)
    if name not in KINDS:
        raise UsageError(f"unknown recurrence {name!r}", hint_for(name, KINDS, "recurrences"))
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


def _check_study(name: str) -> list[CheckResult]:
    from lrurun import studies
    from lrurun.runner import cells
    from lrurun.studies import plan as planning

    study = studies.get(name)
    results = cells.in_process(planning.make(study, "ci", {}))
    findings = []
    for one in study.checks(results):
        detail = f"{one.kind}: measured {one.number()}, expected {one.expected:.6g}, {one.rule}"
        findings.append(CheckResult(study.name, one.name, one.state != "FAILED", detail))
    return findings
