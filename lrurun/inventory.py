"""What there is to run, and whether it is well formed: the commands list and check."""

from __future__ import annotations

import json as jsonlib
from typing import Any, Literal, get_args

from lrurun import catalog, console, paths, tasks
from lrurun import plan as planning
from lrurun.config import (
    DenseRecurrence,
    DiagonalRecurrence,
    DLRRecurrence,
    DSSRecurrence,
    Recurrence,
    RotRNNRecurrence,
    S4DRecurrence,
    S5Recurrence,
)
from lrurun.errors import LrurunError, UsageError, hint_for

RECURRENCES = {member.__struct_config__.tag: member for member in get_args(Recurrence)}


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
        ladder = catalog.load_ladder(name)
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
        recipe = catalog.load_recipe(name)
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
    known = {rung.name for ladder in map(catalog.load_ladder, paths.names("ablations")) for rung in ladder.rungs}
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


def _variants(name: str) -> list[tuple[str, Any]]:
    """Settings of a recurrence: one for each that a rung of the ladders has, and for each other form and start."""
    if name == "dense":
        activations: tuple[Literal["tanh", "relu", "identity"], ...] = ("tanh", "relu", "identity")
        drawn = [("dense, identity, truncated", DenseRecurrence(draw="truncated"))]
        return [(f"dense, {a}", DenseRecurrence(activation=a)) for a in activations] + drawn
    if name == "rotrnn":
        rotations = {
            "rotrnn": RotRNNRecurrence(),
            "rotrnn, heads": RotRNNRecurrence(heads=4),
            "rotrnn, normalised by gamma": RotRNNRecurrence(heads=4, normalizer="gamma", draw="ring"),
            "rotrnn, not normalised": RotRNNRecurrence(heads=4, normalizer="none"),
        }
        return list(rotations.items())
    if name == "s5":
        return [
            ("s5", S5Recurrence()),
            ("s5, blocks, bilinear", S5Recurrence(blocks=4, c_init="lecun", discretization="bilinear")),
            ("s5, complex C, clipped", S5Recurrence(blocks=2, c_init="complex", clip_eigs=True)),
            ("s5, without conjugates", S5Recurrence(conj_sym=False, slow_b=False, slow_dt=False)),
        ]
    if name == "s4d":
        return [
            ("s4d, lin", S4DRecurrence()),
            ("s4d, lin, bilinear", S4DRecurrence(discretization="bilinear", slow_dt=False)),
            ("s4d, inv, shared", S4DRecurrence(init="inv", n_ssm=4)),
            ("s4d, inv2", S4DRecurrence(init="inv2")),
            ("s4d, quad", S4DRecurrence(init="quad")),
            ("s4d, legs", S4DRecurrence(init="legs")),
            ("s4d, legs, fixed B", S4DRecurrence(init="legs", train_b=False)),
            ("s4d, real", S4DRecurrence(init="real")),
        ]
    if name == "dlr":
        forms = {
            "dlr": DLRRecurrence(),
            "dlr, imaginary part": DLRRecurrence(cast="imag"),
            "dlr, both parts": DLRRecurrence(cast="sum"),
            "dlr, product": DLRRecurrence(cast="prod"),
            "dlr, unit circle": DLRRecurrence(poles="unit", phases="normal"),
            "dlr, real weights": DLRRecurrence(weights="real"),
            "dlr, real": DLRRecurrence(poles="real", weights="real"),
            "dlr, short kernel": DLRRecurrence(kernel_length=10),
        }
        return list(forms.items())
    if name == "dss":
        return [("dss, lin", DSSRecurrence()), ("dss, hippo", DSSRecurrence(init="hippo"))]
    return [
        ("diagonal, cartesian", DiagonalRecurrence(parametrization="cartesian")),
        ("diagonal, exponential", DiagonalRecurrence(parametrization="exponential")),
        ("diagonal, stable-exponential", DiagonalRecurrence()),
        ("diagonal, on a ring", DiagonalRecurrence(r_min=0.9, r_max=0.999)),
        ("diagonal, normalised", DiagonalRecurrence(r_min=0.9, r_max=0.999, normalize=True)),
        (
            "diagonal, small phase",
            DiagonalRecurrence(r_min=0.9, r_max=0.999, normalize=True, phase="log", max_phase=0.314),
        ),
        ("diagonal, conjugate pairs", DiagonalRecurrence(r_min=0.9, r_max=0.999, normalize=True, conjugate=True)),
        ("diagonal, heads", DiagonalRecurrence(r_min=0.9, r_max=0.999, normalize=True, conjugate=True, heads=4)),
    ]


def _check_recurrence(name: str) -> list[dict[str, Any]]:
    if name not in RECURRENCES:
        raise UsageError(f"unknown recurrence {name!r}", hint_for(name, RECURRENCES, "recurrences"))
    from lrurun import conformance

    findings = []
    for label, settings in _variants(name):
        for finding in conformance.check(settings):
            findings.append({"name": label, "check": finding.name, "passed": finding.passed, "detail": finding.detail})
    return findings
