"""`lrurun check`: whether a ladder, a recipe, a recurrence or a study is valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer
from msgspec import Struct, structs

from lrurun import console, paths
from lrurun.commands import output
from lrurun.commands.options import Json, OnLadders, choice
from lrurun.errors import LrurunError, UsageError, hint_for, plural

if TYPE_CHECKING:
    from lrurun.config.resolve import ResolvedRung


class CheckResult(Struct, frozen=True):
    """The outcome of one check."""

    name: str
    check: str
    passed: bool
    detail: str
    warning: bool = False
    """Whether it passed with a warning, which `detail` gives."""


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
    ladder: OnLadders = None,
    json: Json = False,
) -> int:
    """Check a ladder, a recipe, a recurrence or a study.

    Ladders and recipes are resolved against each other: a ladder on every recipe, a recipe on the ladders that it has
    values for, or on those that --ladder names. All that is missing or wrong in a recipe is listed at once; what is
    documentation in your own is only a warning. A recurrence has to pass the tests of the built-in ones: scan against
    step, gradients, padding, long sequences, initial variance. A study is computed in its quickest form, and not
    recorded. The exit code is 2 if a ladder or recipe is invalid, 1 if a recurrence fails a test, 3 if a check of a
    study fails.
    """
    from lrurun import studies
    from lrurun.config.ladder import read_ladder
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
    if ladder and what != "recipe":
        raise UsageError(f"check {what}: --ladder is for recipes", "omit it")
    chosen = names if all_ else [str(name)]
    checks: dict[str, Callable[[str], list[CheckResult]]] = {
        "ladder": _check_ladder,
        "recipe": partial(_check_recipe, ladders=ladder or ()),
        "recurrence": _check_recurrence,
        "study": _check_study,
    }
    findings: list[CheckResult] = []
    for one in chosen:
        if all_ and what == "ladder" and (files := read_ladder(one).load):
            detail = f"not checked: loads {', '.join(files)}; lrurun check ladder {one} does"
            findings.append(CheckResult(one, "the document", True, detail))
        else:
            findings += checks[what](one)
    if json:
        output.write_json(CheckDocument(findings))
    else:
        rows = [[_state(f), f.name, f.check, f.detail] for f in findings]
        console.table(None, ["", what, "check", "detail"], rows)
    if all(finding.passed for finding in findings):
        return 0
    raise _failure(what, findings)


def _failure(what: str, findings: Sequence[CheckResult]) -> LrurunError:
    bad = [finding.name for finding in findings if not finding.passed]
    where = ", ".join(dict.fromkeys(bad))
    if what == "recipe":
        return UsageError(f"check recipe: {plural(len(bad), 'fault')} in {where}", "listed above")
    kind = {"recurrence": LrurunError, "study": ChecksFailed}.get(what, UsageError)
    return kind(f"check {what}: {len(bad)} of {len(findings)} checks failed: {where}", "the table above shows which")


def _state(finding: CheckResult) -> str:
    return "FAILED" if not finding.passed else "warning" if finding.warning else "ok"


class ChecksFailed(LrurunError):
    """Checks of a study failed."""

    exit_code = 3


def _check_ladder(name: str) -> list[CheckResult]:
    from lrurun.config import plan as planning
    from lrurun.config.ladder import load_ladder

    ladder = load_ladder(name)
    others: list[CheckResult] = []
    """Recipes that a ladder of the user's own cannot run on, where it names none: it need not be meant for them."""
    detail = f"{plural(len(ladder.rungs), 'rung')}, {plural(len(ladder.claims), 'claim')}"
    findings = [CheckResult(name, "the document", True, detail)]
    for task in ladder.recipes or paths.names("recipes"):
        try:
            made = planning.make(task, ladder=name)
        except UsageError as error:
            wrong = CheckResult(name, f"on {task}", False, f"{error.message}; {error.hint}")
            (findings if ladder.recipes or ladder.is_packaged else others).append(wrong)
            continue
        changed = {rung.name: _changes(rung) for rung in made.rungs if rung.on is not None}
        detail = "; ".join(f"{rung}: {text}" for rung, text in changed.items())
        findings.append(CheckResult(name, f"on {task}", True, detail))
    runs = len(findings) > 1
    return findings + [structs.replace(one, passed=runs, warning=runs) for one in others]


def _changes(rung: ResolvedRung) -> str:
    """What a rung changes on a task."""
    if rung.same_as_base:
        return f"same settings as {rung.on} on this task, shares its runs"
    return ", ".join(one.path for one in rung.differences)


def _check_recipe(name: str, ladders: Sequence[str]) -> list[CheckResult]:
    from lrurun.config import recipe_faults

    return [
        CheckResult(name, one.check, one.passed, one.detail, one.is_warning)
        for one in recipe_faults.find(name, ladders)
    ]


def _check_recurrence(name: str) -> list[CheckResult]:
    from lrurun import plugins
    from lrurun.config.recurrences import KINDS

    plugins.load_installed("recurrence", name)
    if name not in KINDS:
        own = f"{name}.py"
        hint = f"--load {own}" if Path(own).is_file() else hint_for(name, KINDS, "recurrences")
        raise UsageError(f"unknown recurrence {name!r}", hint)
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
