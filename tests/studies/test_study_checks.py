"""Every study is declared completely, its checks pass and notice a damaged layer, and its figure fits."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from scipy import stats

from lrurun import studies
from lrurun.report.figures import figure_files, figures
from lrurun.studies import convolution
from lrurun.studies.machinery import checks, execution, planning, reporting, study_pages
from lrurun.studies.machinery.study import Results, Study
from tests.harness.drawings import misplaced


def computed(name: str, changes: dict[str, Any], seeds: int | None = None) -> tuple[Study[Any], Results[Any]]:
    """A study and the cells of its quickest form, with these changes."""
    study = studies.get(name)
    return study, execution.in_process(planning.make(study, "ci", changes, seeds and range(seeds)))


def in_process(name: str, changes: dict[str, Any]) -> reporting.StudyReport:
    """The report of a study in its quickest form with one seed, without a ledger."""
    study, results = computed(name, changes, 1)
    return reporting.build(planning.make(study, "ci", changes, range(1)), results)


def judged(study: Study[Any], results: Results[Any]) -> tuple[list[checks.Check], figures.Figure]:
    """The checks and the figure of a study; its answer must be possible."""
    assert study.answer(results).endswith(".")
    return study.checks(results), study.figure(results)


def floats(of: msgspec.inspect.Type) -> Iterator[msgspec.inspect.FloatType]:
    if isinstance(of, msgspec.inspect.FloatType):
        yield of
    inner = [*getattr(of, "types", ()), *getattr(of, "item_types", ())]
    for one in [*inner, of.item_type] if hasattr(of, "item_type") else inner:
        yield from floats(one)


def test_every_study_is_declared_completely() -> None:
    aliases = [alias for study in studies.every() for alias in study.aliases]
    assert len(aliases) == len(set(aliases))
    for study, name in zip(studies.every(), studies.names(), strict=True):
        assert study.name == name
        assert set(study.profiles) >= {"ci", "laptop", "paper"}
        assert all(studies.get(alias) is study for alias in study.aliases)
        for profile in study.profiles:
            made = planning.make(study, profile, {})
            fingerprints = [run.fingerprint for run in made.runs()]
            assert len(fingerprints) == len(set(fingerprints))
            assert len(set(map(study.described, made.cells))) == len(made.cells)
        paper = (study.profiles["paper"], study.seeds.get("paper", 1))
        other = {name for name, table in study.profiles.items() if (table, study.seeds.get(name, 1)) != paper}
        assert other <= set(study.stand_in) or study.exact
        assert all(sentence.endswith(".") for sentence in study.stand_in.values())
        for field in msgspec.inspect.type_info(study.settings).fields:
            for one in floats(field.type):
                assert (one.ge, one.gt) != (None, None), (name, field.name)
                assert (one.le, one.lt) != (None, None), (name, field.name)


def test_cells_have_the_fingerprints_that_ledgers_know(golden) -> None:
    """So that what was computed by an earlier version is not computed again."""
    lines = []
    for study in studies.every():
        for profile in ("ci", "laptop", "paper"):
            made = planning.make(study, profile, {})
            digest = hashlib.sha256("".join(run.fingerprint for run in made.runs()).encode()).hexdigest()[:12]
            lines.append(f"{study.name} {profile}: {len(made.cells)} cells, {len(made.seeds)} seeds, {digest}")
    golden("study-cells.txt", "\n".join(lines) + "\n")


def test_checks_fail_where_they_should() -> None:
    assert checks.identity("a", 1.0 + 0.9e-8, 1.0).passed
    assert not checks.identity("a", 1.0 + 2e-8, 1.0).passed
    assert not checks.identity("a", math.nan, 1.0).passed
    assert not checks.sampling("a", 1.6, 1.0, 0.1).passed
    assert checks.sampling("a", 1.4, 1.0, 0.1).passed
    assert [checks.identity("a", 1.0, at).tolerance_kind for at in (0.0, 2.0)] == ["absolute", "relative"]
    assert [checks.below("a", number, 2.0).passed for number in (1.0, 2.0, math.nan)] == [True, False, False]
    differences = [0.3, -0.1, 0.8, 0.2]
    expected = stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue
    assert checks.one_sided_p(differences) == pytest.approx(expected, rel=1e-12)
    assert checks.sign_p(6, 7) == pytest.approx(stats.binomtest(6, 7, alternative="greater").pvalue, rel=1e-12)
    assert [checks.one_sided_p([sign] * 3) for sign in (1.0, -1.0)] == [0.0, 1.0]
    assert math.isnan(checks.one_sided_p([1.0]))


def test_a_training_that_ends_too_early_is_no_measurement() -> None:
    # 500 updates are too few for real and imaginary parts; the exponential form needs 52 of them, or 418
    fast, slow = (in_process("powers", {"angle": 0.5, "lr": rate}) for rate in (0.003, 0.0001))
    assert "real-imaginary never: loss 0.067 (0.5); exponential 52 (0.5)" in fast.answer
    verdicts = [(claim.verdict, claim.detail.split(";")[0]) for report in (fast, slow) for claim in report.claims]
    name = "updates of real-imaginary over exponential, geometric mean over the angles"
    assert verdicts == [("supported", f"{name}: 9.615"), ("undecided", f"{name}: 1.196")]
    assert reporting.counts(slow) == "6 of 6 checks passed"
    assert jnp.zeros(1).dtype == "float32", "what follows in this process is not float64"


def test_one_seed_decides_no_claim_about_seeds() -> None:
    report = in_process("disk", {"size": [10, 20]})
    assert report.failed == []
    assert [(claim.verdict, "needs 5 seeds" in claim.detail) for claim in report.claims] == [("undecided", True)] * 2


def test_a_simulation_has_the_colour_of_its_closed_form() -> None:
    curves = (
        figures.line("exact", [1, 10], [1, 2]),
        figures.points("sampled", [1, 10], [1, 2], low=[0.9, 1.9], high=[1.1, 2.1], family="exact"),
        figures.dashed("printed", [1, 10], [1, 3], family="exact"),
        figures.grey("other", [1, 10], [1, 4]),
    )
    panel = figures.Panel(x="a - b", y="y", curves=curves, y_scale="log", x_ticks=((1, "first"), (10, "second")))
    drawn = figure_files.draw(figures.Figure(panels=(panel,), title="Q?", caption="A."))
    [ax] = drawn.axes
    exact, sampled, printed, other = (line.get_color() for line in ax.lines)
    assert exact == sampled == printed != other
    assert ax.get_xlabel() == "a − b"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["first", "second"]
    assert {1.0, 2.0} <= set(ax.get_yticks())  # there are not two powers of ten between 1 and 4
    assert misplaced(drawn) == []


def test_pictures_of_one_label_have_one_scale_of_colours() -> None:
    def panel(label: str, *values: float) -> figures.Panel:
        picture = figures.Picture(x=(0.0, 1.0), y=(0.0,), z=(values,), label=label, scale="log")
        return figures.Panel(x="x", y="y", picture=picture)

    panels = (panel("a", 1.0, 10.0), panel("a", 0.1, float("nan")), panel("b", 1.0, 2.0))
    drawn = figure_files.draw(figures.Figure(panels=panels, columns=2, title="Q?", caption="A."))
    meshes = [ax.collections[0] for ax in drawn.axes[:3]]
    assert [(mesh.norm.vmin, mesh.norm.vmax) for mesh in meshes] == [(0.1, 10.0), (0.1, 10.0), (1.0, 2.0)]
    bars = [
        ax for ax in (*drawn.axes, *(child for ax in drawn.axes for child in ax.child_axes)) if ax.get_ylabel() in "ab"
    ]
    assert sorted(ax.get_ylabel() for ax in bars) == ["a", "b"]
    assert misplaced(drawn) == []


def test_the_path_of_an_angle_is_within_its_landscape() -> None:
    for result in computed("angle", {"form": ["exponential", "optimal-stop"], "updates": 500})[1]:
        for name in "wv":
            path, axis = result.curves[name], result.curves[f"landscape {name}"]
            assert axis[0] < path.min() < path.max() < axis[-1]


def test_powers_shows_the_landscape_of_the_loss_with_its_paths() -> None:
    powers, results = computed("powers", {"angle": 0.5})
    for result, panel in zip(results, powers.draw(results).panels, strict=False):
        path, start, target = panel.curves
        assert (path.x[0], path.y[0]) == (start.x[0], start.y[0])
        eigenvalue = complex(target.x[0], target.y[0])
        if result.cell.form == "exponential":
            eigenvalue = np.exp(-eigenvalue.real + 1j * eigenvalue.imag)
        assert eigenvalue == pytest.approx(0.99 * np.exp(0.25j * np.pi))
        # The loss of the landscape next to the start is that of the first update.
        x, y = (result.curves[f"landscape {name}"] for name in "xy")
        place = np.argmin(np.abs(y - start.y[0])), np.argmin(np.abs(x - start.x[0]))
        loss = result.curves["landscape loss"].reshape(len(y), len(x))[place]
        assert loss == pytest.approx(result.curves["loss"][0], rel=0.3)


def test_the_learned_kernel_is_that_of_the_outputs() -> None:
    study, results = computed("convolution", {"model": "linear", "state": 10, "updates": 60, "lr": 1e-4})
    u, y = convolution.data(0)
    outputs = np.stack([np.convolve(column, results[0].curves["learned kernel"])[: len(u)] for column in u.T], axis=1)
    assert 0.5 * np.mean((outputs - y) ** 2) == pytest.approx(results[0]["final loss"], rel=0.1)
    linear, target = study.draw(results).panels[-1].curves
    assert (target.label, linear.label) == ("target", "linear")
    assert target.y == tuple(convolution.kernel())


def test_medians_have_bars_over_the_middle_of_their_samples() -> None:
    samples = {1.0: [10.0, 3.0, 0.0, 2.0, 1.0], 2.0: []}
    for percent, low, high in ((50.0, 1.0, 3.0), (100.0, 0.0, 10.0)):
        found = figures.spread("a", samples, percent=percent)
        assert (found.x, found.y, found.low, found.high) == ((1.0,), (2.0,), (low,), (high,))


def test_a_stand_in_names_the_changed_settings() -> None:
    for profile, changes, sentence in (
        ("paper", {}, ""),
        ("paper", {"updates": 100}, "Stand-in: updates=100 by --set, otherwise the profile paper."),
        ("ci", {"updates": 100}, "Stand-in: updates=100 by --set, otherwise the profile ci: 500 updates"),
    ):
        plan = planning.make(studies.get("powers"), profile, changes)
        found = reporting.build(plan, Results([], profile)).stand_in
        assert found.startswith(sentence)
        assert bool(found) == bool(sentence)


def test_landscape_compares_no_gap_with_itself() -> None:
    study, results = computed("landscape", {"gap": [0.01, 0.1]}, 2)
    assert checks.failed(study.checks(results)) == []


def test_a_page_has_the_answers_and_checks_of_studies() -> None:
    study, results = computed("similarity", {"rho": [0.0, 0.9], "side": 5})
    assert judged(study, results)
    report = in_process("similarity", {"rho": [0.0, 0.9], "side": 5})
    unfinished = reporting.build(planning.make(study, "ci", {}), Results([], "ci"))
    html = study_pages.render([(report, "<svg></svg>"), (unfinished, "")])
    assert html.count('class="supported">ok') == len(report.checks) > 0
    assert "Not finished." in html


@pytest.mark.slow
def test_a_page_may_show_the_colours_of_planes() -> None:
    study, results = computed("similarity", {"rho": 0.0})
    report = in_process("similarity", {"rho": 0.0})
    html = study_pages.render([(report, study_pages.inline(report, study.figure(results)))])
    assert "data:image/png" in html
    assert "img-src data:;" in html


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.names())
def test_the_checks_of_every_study_pass_and_its_figure_fits(name: str) -> None:
    """And each axis may have one value: the cells are then a part of these."""
    study, whole = computed(name, {})
    found, drawn = judged(study, whole)
    assert found
    assert checks.failed(found) == []
    assert misplaced(figure_files.draw(msgspec.structs.replace(drawn, title="A question?", caption="An answer."))) == []
    for axis, values in study.profiles["ci"].items():
        if isinstance(values, list):
            plan = planning.make(study, "ci", {axis: values[:1]})
            some = [one for one in whole if one.cell in plan.cells]
            assert len(some) == len(plan.cells) * len(plan.seeds)
            judged(study, Results(some, "ci"))


EDGES: dict[str, list[dict[str, Any]]] = {
    "memory": [{"rho": 1.0, "points": 2}],
    "disk": [{"size": 2}, {"size": 3}],
    "leak": [{"samples": 256}],
    "convolution": [{"state": 1}, {"state": 5, "lr": 10.0, "updates": 60}],
    "powers": [{"angle": -4.0, "form": "exponential", "radius": 1e-6, "updates": 1}, {"lr": 10.0, "updates": 50}],
    "landscape": [{"gap": 1e-4}, {"gap": 0.95, "rho": 1.0, "points": 1}],
    "remedy": [{"points": 1}, {"rho": 0.999999}],
    "parametrise": [{"radius": 1e-3, "angle": 1.0, "points": 2}],
    "angle": [{"updates": 1, "radius": 0.999999}, {"updates": 3, "start": 1.0, "normalised": True}],
    "similarity": [{"rho": 0.5, "side": 3}],
    "ring": [{"ring": [[0.0, 0.01]]}, {"ring": [[0.9, 1.0]], "samples": 1}],
    "gain": [{"steps": 1, "ring": [[0.0, 0.01]]}],
    "impulse": [{"decay": 1.0, "steps": 600, "phase": 2.0}],
    "phase": [{"updates": 20, "length": 2, "state": 1, "r_min": 0.0, "r_max": 0.5}],
    "hessian": [{"network": ["dense", "lru"], "low": 0.5, "high": 0.5, "length": 10}],
    "concentration": [{"architecture": "lru", "angle": 1e-6, "rho": 1.0, "systems": 1}],
    "norms": [{"task": "white", "decay": 1e-3}, {"task": "map", "heads": 1, "width": 1, "state": 2}],
    "reals": [{"modes": 2, "length": 8}, {"modes": 64, "length": 8}],
}
"""Study -> settings at the ends of their ranges."""


@pytest.mark.slow
@pytest.mark.parametrize("name", EDGES)
def test_checks_pass_at_the_ends_of_the_ranges(name: str) -> None:
    for changes in EDGES[name]:
        study, results = computed(name, changes)
        found, _ = judged(study, results)
        assert checks.failed(found) == [], changes
        for claim in study.claims:
            evidence = claim.evidence(results)
            assert evidence is None or evidence.detail


Damage = Callable[[pytest.MonkeyPatch], None]


def everywhere(home: str, name: str, change: Callable[[Any], Any]) -> Damage:
    """A damage: `change` of the function `name` of the module `home`, in all modules of layers that have imported it.

    For example everywhere("lrurun.nn.recurrences.lru", "ring", change).
    """

    def damage(patch: pytest.MonkeyPatch) -> None:
        right = getattr(sys.modules[home], name)
        wrong = change(right)
        for module in [module for path, module in sys.modules.items() if path.startswith("lrurun.nn.")]:
            if getattr(module, name, None) is right:
                patch.setattr(module, name, wrong)

    return damage


def scaled_ring(decay: float, phase: float) -> Damage:
    """Factors of the initial nu and theta."""

    def change(ring: Any) -> Any:
        def wrong(*arguments: Any) -> Any:
            nu, theta = ring(*arguments)
            return decay * nu, phase * theta

        return wrong

    return everywhere("lrurun.nn.recurrences.lru", "ring", change)


def of_class(path: str, name: str, change: Callable[[Any], Any]) -> Damage:
    """A damage: `change` of the method `name` of a class, given as "module:Class"."""

    def damage(patch: pytest.MonkeyPatch) -> None:
        module, _, cls = path.partition(":")
        patched = getattr(sys.modules[module], cls)
        patch.setattr(patched, name, change(getattr(patched, name)))

    return damage


DAMAGES: dict[str, Damage] = {
    "phases of the ring x 0.1": scaled_ring(1.0, 0.1),
    "nu of the ring x 0.3": scaled_ring(0.3, 1.0),
    "gamma to the fourth power": everywhere(
        "lrurun.nn.recurrences.lru", "log_gamma", lambda right: lambda nu: 4.0 * right(nu)
    ),
    "entries of normal matrices x 1.1": everywhere(
        "lrurun.nn.sampling",
        "normals",
        lambda right: lambda *arguments: {name: 1.1 * value for name, value in right(*arguments).items()},
    ),
    "a symmetric dense matrix": of_class(
        "lrurun.nn.recurrences.rnn:RNN",
        "init",
        lambda right: lambda layer, key: (params := right(layer, key)) | {"A": (params["A"] + params["A"].T) * 2**-0.5},
    ),
    "no gradient of the dense matrix": everywhere(
        "lrurun.nn.recurrences.rnn",
        "dense_scan",
        lambda right: lambda a, *rest: right(jax.lax.stop_gradient(a), *rest),
    ),
    "phases of eigenvalues x 0.1": everywhere(
        "lrurun.nn.complex", "polar", lambda right: lambda nu, theta: right(nu, 0.1 * theta)
    ),
    "nu of eigenvalues x 0.3": everywhere(
        "lrurun.nn.complex", "polar", lambda right: lambda nu, theta: right(0.3 * nu, theta)
    ),
    "nu of the stable form x 0.3": of_class(
        "lrurun.nn.recurrences.parametrizations:StableExponential",
        "actual_decay",
        lambda right: lambda form, trained: 0.3 * right(form, trained),
    ),
    "phases of exponential forms x 0.1": of_class(
        "lrurun.nn.recurrences.parametrizations:Exponential",
        "decay_and_phase",
        lambda right: lambda form, params: (right(form, params)[0], 0.1 * right(form, params)[1]),
    ),
    "step of the dense recurrence x 0.99": of_class(
        "lrurun.nn.recurrences.rnn:RNN",
        "step",
        lambda right: lambda layer, params, state, u: right(layer, params, 0.99 * state, u),
    ),
    "moved eigenvalues of the dense matrix x 0.7": everywhere(
        "lrurun.nn.recurrences.rnn", "remapped", lambda right: lambda *arguments: 0.7 * right(*arguments)
    ),
    "all phases of DLR 0": of_class(
        "lrurun.nn.recurrences.dlr:DLR",
        "init",
        lambda right: (
            lambda layer, key: {
                name: 0.0 * value if name == "log_im" else value for name, value in right(layer, key).items()
            }
        ),
    ),
    "phases of kernels x 1.01": everywhere(
        "lrurun.nn.convolution.powers", "powers", lambda right: lambda nu, theta, steps: right(nu, 1.01 * theta, steps)
    ),
    "normaliser of the RotRNN x 7": of_class(
        "lrurun.nn.recurrences.rotrnn:RotRNN",
        "_normalizer",
        lambda right: lambda layer, params: 7.0 * right(layer, params),
    ),
}
"""Name -> what it does to the layers."""

NOTICED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "disk": ({"size": [50]}, ("entries of normal matrices x 1.1", "a symmetric dense matrix")),
    "convolution": ({"state": 10, "model": "linear"}, ("no gradient of the dense matrix",)),
    "powers": ({"angle": 0.5, "updates": 10}, ("phases of eigenvalues x 0.1", "nu of eigenvalues x 0.3")),
    "remedy": ({}, ("gamma to the fourth power", "nu of the stable form x 0.3")),
    "angle": ({"form": ["exponential"], "updates": 10}, ("phases of exponential forms x 0.1",)),
    "ring": ({"ring": [[0.9, 0.999]]}, ("phases of the ring x 0.1", "nu of the ring x 0.3")),
    "impulse": ({"steps": [1024]}, ("nu of the ring x 0.3",)),
    "teacher": ({"architecture": ["dense"], "nu": 0.9, "updates": 1}, ("moved eigenvalues of the dense matrix x 0.7",)),
    "hessian": ({"network": ["dense"]}, ("step of the dense recurrence x 0.99",)),
    "concentration": ({"architecture": ["lru"], "angle": [0.1], "rho": [0.0]}, ("nu of the stable form x 0.3",)),
    "reals": ({"modes": [64]}, ("all phases of DLR 0", "phases of kernels x 1.01")),
    "norms": ({"task": "map"}, ("normaliser of the RotRNN x 7",)),
    "phase": ({"normalize": True, "phase": 2.0, "length": 64, "updates": 20}, ("gamma to the fourth power",)),
}
"""Study -> settings with which its quickest form takes less time, and damages that its checks notice then."""


def failed(study: str) -> list[str]:
    """The names of the checks that fail, computed with the layers as they are now."""
    modules = [module for path, module in sys.modules.items() if path.startswith("lrurun.studies.")]
    for program in [value for module in modules for value in vars(module).values()]:
        if hasattr(program, "cache_clear"):  # what was compiled with other layers is compiled again
            program.cache_clear()
    one, results = computed(study, NOTICED[study][0])
    return [check.name for check in checks.failed(one.checks(results))]


@pytest.mark.slow
@pytest.mark.parametrize("study", NOTICED)
def test_checks_notice_a_damaged_layer(study: str) -> None:
    assert failed(study) == []
    for damage in NOTICED[study][1]:
        with pytest.MonkeyPatch.context() as patch:
            DAMAGES[damage](patch)
            assert failed(study), damage
    failed(study)
