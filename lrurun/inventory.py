"""What there is to run, and whether it is well formed: the commands list and check."""

from __future__ import annotations

import json as jsonlib
from typing import Any

from lrurun import catalog, console, paths, plugins, tasks
from lrurun import plan as planning
from lrurun.config import RECURRENCES
from lrurun.errors import LrurunError, UsageError, hint_for


def list_(what: str | None, *, json: bool) -> int:
    """Prints ladders, recipes, tasks, recurrences, or all of them."""
    kinds = {"ladders": _ladders, "recipes": _recipes, "tasks": _tasks, "recurrences": _recurrences}
    chosen = {what: kinds[what]} if what else kinds
    if json:
        console.write(jsonlib.dumps({"schema_version": 1} | {name: make() for name, make in chosen.items()}, indent=2))
        return 0
    for name, make in chosen.items():
        found = make()
        headers = list(found[0]) if found else ["name"]
        rows = [[", ".join(v) if isinstance(v, list) else str(v) for v in entry.values()] for entry in found]
        console.table(name, headers, rows)
    return 0


def _ladders() -> list[dict[str, Any]]:
    found = []
    for name, path in paths.names("ablations").items():
        ladder = catalog.read_ladder(name)
        found.append(
            {
                "name": name,
                "title": ladder.title,
                "rungs": [rung.name for rung in ladder.rungs],
                "file": paths.shown(path),
            }
        )
    return found


def _recipes() -> list[dict[str, Any]]:
    found = []
    for name, path in paths.names("recipes").items():
        recipe = catalog.read_recipe(name)
        found.append(
            {
                "name": name,
                "expect": recipe.about.expect,
                "profiles": list(recipe.profile),
                "checked": recipe.about.checked,
                "file": paths.shown(path),
            }
        )
    return found


def _tasks() -> list[dict[str, Any]]:
    return [
        {
            "name": task.name,
            "title": task.title,
            "classes": task.classes,
            "sizes": [f"{k} {v}" for k, v in task.sizes(task.options()).items()],
        }
        for task in tasks.TASKS.values()
    ]


def _recurrences() -> list[dict[str, Any]]:
    return [{"name": name, "what": (settings.__doc__ or "").strip()} for name, settings in RECURRENCES.items()]


def check(what: str, name: str | None, *, all_: bool, json: bool) -> int:
    """Checks documents or recurrences; exit code 0 when all of them are sound.

    Raises:
        UsageError: no name, or a document that is wrong.
    """
    names = {
        "ladder": lambda: list(paths.names("ablations")),
        "recipe": lambda: list(paths.names("recipes")),
        "recurrence": lambda: list(RECURRENCES),
    }[what]()
    if all_ == (name is not None):
        raise UsageError(f"check {what}: expected a name, or --all", f"{what}s: {', '.join(names)}")
    chosen = names if all_ else [str(name)]
    checks = {"ladder": _check_ladder, "recipe": _check_recipe, "recurrence": _check_recurrence}[what]
    findings: list[dict[str, Any]] = []
    for one in chosen:
        if all_ and what == "ladder" and (files := catalog.read_ladder(one).load):
            detail = f"not checked: loads {', '.join(files)}; lrurun check ladder {one} does"
            findings.append({"name": one, "check": "the document", "passed": True, "detail": detail})
        else:
            findings += checks(one)
    if json:
        console.write(jsonlib.dumps({"schema_version": 1, "findings": findings}, indent=2))
    else:
        rows = [["ok" if f["passed"] else "FAILED", f["name"], f["check"], f["detail"]] for f in findings]
        console.table(None, ["", what, "check", "detail"], rows)
    if all(finding["passed"] for finding in findings):
        return 0
    bad = [f["name"] for f in findings if not f["passed"]]
    kind = LrurunError if what == "recurrence" else UsageError
    raise kind(
        f"check {what}: {len(bad)} of {len(findings)} checks failed: {', '.join(dict.fromkeys(bad))}",
        "the lines above say which",
    )


def _check_ladder(name: str) -> list[dict[str, Any]]:
    ladder = catalog.load_ladder(name)
    detail = f"{len(ladder.rungs)} rungs, {len(ladder.claims)} claims"
    findings = [{"name": name, "check": "the document", "passed": True, "detail": detail}]
    for task in paths.names("recipes"):
        try:
            made = planning.make(task, ladder=name)
        except UsageError as error:
            findings.append(
                {"name": name, "check": f"on {task}", "passed": False, "detail": f"{error.message}; {error.hint}"}
            )
            continue
        moved = "; ".join(f"{r.name}: {', '.join(m.path for m in r.moves) or 'as before'}" for r in made.rungs[1:])
        findings.append({"name": name, "check": f"on {task}", "passed": True, "detail": moved})
    return findings


def _check_recipe(name: str) -> list[dict[str, Any]]:
    recipe = catalog.load_recipe(name)
    tasks.get(recipe.task)
    findings = [{"name": name, "check": "the document", "passed": True, "detail": f"checked: {recipe.about.checked}"}]
    known = {rung.name for ladder in map(catalog.read_ladder, paths.names("ablations")) for rung in ladder.rungs}
    for rung in [*recipe.rung, *(r for p in recipe.profile.values() for r in p.rung)]:
        if rung not in known:
            detail = f"[rung.{rung}] is in no ladder; " + hint_for(rung, sorted(known), "rungs")
            findings.append({"name": name, "check": "rung tables", "passed": False, "detail": detail})
    for profile in [None, *recipe.profile]:
        made = planning.make(name, profile=profile)
        train = made.rungs[0].config.train
        detail = f"{len(made.rungs)} rungs of ladder {made.ladder.name}, {train.steps} steps, {made.seeds} seeds"
        findings.append({"name": name, "check": f"profile {profile or '(none)'}", "passed": True, "detail": detail})
    for path in recipe.ours:
        if path not in planning.known_paths():
            detail = f"[ours] {path}: unknown path; " + hint_for(path, planning.known_paths(), "paths")
            findings.append({"name": name, "check": "[ours]", "passed": False, "detail": detail})
    return findings


def _check_recurrence(name: str) -> list[dict[str, Any]]:
    plugins.find("recurrence", name)
    if name not in RECURRENCES:
        raise UsageError(f"unknown recurrence {name!r}", hint_for(name, RECURRENCES, "recurrences"))
    from lrurun import conformance

    findings = []
    for label, settings in conformance.variants(name).items():
        console.say(f"checking {label}")  # each takes seconds, most of them to compile
        for finding in conformance.check(settings):
            findings.append({"name": label, "check": finding.name, "passed": finding.passed, "detail": finding.detail})
    return findings
