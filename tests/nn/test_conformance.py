"""Every recurrence does what all must do, and refuses what does not fit; and what breaks a rule is caught."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import pytest
from jaxtyping import TypeCheckError
from msgspec import structs

from lrurun.config import planning
from lrurun.config.recurrences import KINDS, Declaration, RecurrenceSettings, registration
from lrurun.config.recurrences.gated import GatedSettings
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.recurrences.s4d import S4DSettings
from lrurun.config.schema import ModelConfig
from lrurun.decoding import convert
from lrurun.errors import UsageError
from lrurun.nn import conformance, convolution, lowering, recurrences
from lrurun.nn.axes import expand
from lrurun.nn.recurrences import Recurrence, dlr
from lrurun.nn.recurrences.gated import Gated
from lrurun.nn.recurrences.rnn import RNN
from lrurun.nn.recurrences.s4d import S4D

VARIANTS = {name: settings for kind in KINDS for name, settings in conformance.variants(kind).items()}
PLAIN = {next(iter(conformance.variants(kind))) for kind in KINDS} - {"attention"} | {"attention, local"}
"""A form of each kind; of attention the one whose states do not grow, as each size is compiled."""
MARKS = {name: pytest.mark.slow if name in PLAIN else pytest.mark.rare for name in VARIANTS}
MARKS["diagonal, normalised"] = ()


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
def test_conforms(name: str) -> None:
    assert not [finding for finding in conformance.check(VARIANTS[name]) if not finding.passed]


WITH_CHUNKS = [
    pytest.param(name, marks=() if name == "diagonal, normalised" else pytest.mark.slow)
    for name, settings in VARIANTS.items()
    if (kind := KINDS[str(settings.__struct_config__.tag)].load())
    and {kind.chunks, kind.scan_and_norms} - {Recurrence.chunks, Recurrence.scan_and_norms}
]


@pytest.mark.parametrize("name", WITH_CHUNKS)
def test_norms_of_chunks_side_by_side_are_those_of_the_sequence(name: str) -> None:
    """In both directions, where a kind has them."""
    settings = VARIANTS[name]
    both = not KINDS[str(settings.__struct_config__.tag)].load().causal_only
    width = 16 if settings.elementwise else 12
    layer = recurrences.build(settings, width=width, state=16, bidirectional=both, backend="chunked")
    passed, detail = conformance.scan_and_norms(conformance.Case(layer, jax.random.key(0)))
    assert passed, detail


def test_the_variants_change_every_setting_and_have_every_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {kind: conformance.unvaried(kind) for kind in KINDS} == {kind: [] for kind in KINDS}
    few = {"": {}, "blocks": {"blocks": 2, "slow_b": False, "c_init": "lecun"}}
    monkeypatch.setitem(KINDS, "s5", structs.replace(KINDS["s5"], variants=few))
    assert conformance.unvaried("s5") == ["conj_sym", "discretization", "c_init", "clip_eigs", "slow_dt"]


REFUSED = [
    ("attention", {"heads": 5}, {"state": 12}, "heads must divide state, found heads = 5, state = 12"),
    ("attention", {}, {"state": 12}, "needs heads of an even size, state / heads, found heads = 4, state = 12"),
    ("attention", {"heads": 0}, {}, "heads"),
    ("attention", {"chunk": -1}, {}, "chunk"),
    ("dense", {"radius": -0.1}, {}, "radius"),
    ("dense", {"radius": 10.5}, {}, "radius"),
    ("block-diagonal", {}, {"state": 15}, "block-diagonal needs an even state, for blocks of size 2, found state = 15"),
    ("block-diagonal", {"r_max": 0.9}, {}, "r_max needs tied = true, found r_max = 0.9, tied = false"),
    ("block-diagonal", {"tied": True, "r_min": 0.9, "r_max": 0.8}, {}, "r_min must not be larger"),
    ("block-diagonal", {"max_phase": 4.0}, {}, "max_phase"),
    ("diagonal", {"conjugate": True}, {"state": 7}, "conjugate pairs need an even state, found state = 7"),
    ("diagonal", {"conjugate": True, "heads": 5}, {}, "heads must divide state into whole pairs, found heads = 5"),
    ("diagonal", {"heads": 5}, {}, "heads must divide state, found heads = 5, state = 8"),
    ("diagonal", {"train_gamma": False}, {}, "train_gamma = false needs normalize = true"),
    ("diagonal", {"heads": 4, "parametrization": "exponential"}, {}, "heads need parametrization"),
    ("rotrnn", {"heads": 8}, {}, "heads must divide state into planes, an even part each, found heads = 8, state = 8"),
    ("rotrnn", {"r_min": 1.0}, {}, "r_min must not be larger than r_max, found r_min = 1.0"),
    ("gru", {"t_min": 3.0}, {}, "t_min needs t_max, the longest time constant, found t_min = 3.0, t_max = 0"),
    ("lstm", {"t_min": 3.0, "t_max": 2.0}, {}, "t_max must be at least t_min, found t_min = 3.0, t_max = 2.0"),
    ("s5", {"blocks": 3}, {}, "blocks must divide state, found state = 8, blocks = 3"),
    ("s5", {"blocks": 2}, {"state": 6}, "conj_sym = true needs blocks of an even size"),
    ("s5", {}, {"state": 4098}, "must not be larger than 4096, found state = 4098, blocks = 1"),
    ("s5", {"dt_min": 0.2}, {}, "dt_min must not be larger than dt_max, found dt_min = 0.2, dt_max = 0.1"),
    ("s4d", {}, {"state": 7}, "s4d needs an even state, for pairs of conjugates, found state = 7"),
    ("s4d", {"init": "legs"}, {"state": 4098}, "needs a state of at most 4096, found state = 4098"),
    ("s4d", {"n_ssm": 4}, {}, "n_ssm must divide width, found n_ssm = 4, width = 6"),
    ("s4d", {"dt_max": 1e-4}, {}, "found dt_min = 0.001, dt_max = 0.0001"),
    ("s4", {}, {"state": 7}, "s4 needs an even state, for pairs of conjugates, found state = 7"),
    ("s4", {}, {"state": 4098}, "s4 needs a state of at most 4096, found state = 4098"),
    ("s4", {"n_ssm": 4}, {}, "n_ssm must divide width, found n_ssm = 4, width = 6"),
    ("s4", {"dt_max": 1e-4}, {}, "found dt_min = 0.001, dt_max = 0.0001"),
    ("dlr", {"poles": "real"}, {}, 'poles = "real" needs cast = "real" and weights = "real"'),
    ("dlr", {"dt_min": 0.7}, {}, "dt_min must not be larger than dt_max, found dt_min = 0.7, dt_max = 0.5"),
    ("dss", {"init": "hippo"}, {"state": 2049}, 'init = "hippo" needs a state of at most 2048, found state = 2049'),
    ("sgconv", {"alpha_min": 0.6}, {}, "alpha_min must not be larger than alpha_max"),
    ("rg-lru", {}, {"state": 4}, "needs state = width (times expand with a branch), found state = 4, width = 6"),
    ("rg-lru", {"gate_blocks": 5}, {"state": 6}, "gate_blocks must divide the width and the number of gates"),
    ("rg-lru", {"decay": "sigmoid", "gate_blocks": 2, "multiplier": "fixed"}, {"state": 6}, 'found "fixed"'),
    ("rg-lru", {"complex": True, "negative": True, "gate_blocks": 1}, {"state": 6}, "negative = true"),
    ("rg-lru", {"gate_blocks": 2}, {"state": 6, "bidirectional": True}, "causal only"),
    ("s6", {"heads": 4}, {}, "heads must divide width, found heads = 4, width = 6"),
    ("s6", {"gates": "static"}, {}, 'needs b = "constant"'),
    ("s6", {"delta": "dense", "rank": 2}, {}, 'rank needs delta = "low-rank"'),
    ("mingru", {"form": "log-space", "negative": True}, {}, "negative = true"),
    ("minlstm", {"form": "log-space", "candidate": "linear"}, {}, 'candidate = "linear"'),
    ("mingru", {"candidate": "input"}, {}, "found state = 8, width = 6"),
    ("hgrn", {"readout": False}, {}, "readout = false needs state = width"),
    ("mingru", {}, {"bidirectional": True}, 'kind = "mingru", which is causal only'),
]


@pytest.mark.parametrize(
    ("kind", "table", "sizes", "words"), REFUSED, ids=[f"{kind}: {words[:30]}" for kind, *_, words in REFUSED]
)
def test_settings_that_do_not_fit_are_refused(kind: str, table: Any, sizes: Any, words: str) -> None:
    document = {"recurrence": {"kind": kind, **table}, "depth": 1, "width": 6, "state": 8, **sizes}
    with pytest.raises(UsageError) as raised:
        convert(document, ModelConfig[KINDS[kind].settings], "a test")  # type: ignore[name-defined]
    assert words in raised.value.message


def test_the_largest_states_of_hippo_fit() -> None:
    for kind, table, state in (("s5", {}, 4096), ("s4", {}, 4096), ("dss", {"init": "hippo"}, 2048)):
        msgspec.convert({"kind": kind, **table}, KINDS[kind].settings).fits(width=6, state=state, bidirectional=False)


LADDER = """
name = "one"
title = "one"
source = "ours"

[[rung]]
name = "one"
title = "one"
change = {{ "model.recurrence.kind" = "{kind}", "optim.lr" = 0.01 }}
"""


@pytest.mark.parametrize(
    ("kind", "fit", "wrong", "rule"),
    [
        ("dlr", (0, 64), 65, "must not be larger than the task's sequences, 64 steps, found 65"),
        ("dss", (0, 64), 65, "must not be larger than the task's sequences, 64 steps, found 65"),
        ("sgconv", (0, 64, 65), 63, "must be at least the task's sequences, 64 steps, found 63"),
    ],
)
def test_a_kernel_must_fit_the_sequences_of_a_task(tmp_path: Any, kind: str, fit: Any, wrong: int, rule: str) -> None:
    path = tmp_path / "one.toml"
    path.write_text(LADDER.format(kind=kind))
    for length in fit:
        planning.make("sDigits", ladder=str(path), sets={"model.recurrence.kernel_length": length})
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", ladder=str(path), sets={"model.recurrence.kernel_length": wrong})
    assert f"--set model.recurrence.kernel_length: kernel_length {rule}" in caught.value.message
    assert "always fits: model.recurrence.kernel_length = 64" in str(caught.value.hint)
    if kind == "sgconv":  # also of the longest further test split
        with pytest.raises(UsageError, match="kernel_length must be at least the task's sequences, 512 steps"):
            planning.make("InductionHeads", ladder=str(path))
        planning.make("InductionHeads", ladder=str(path), sets={"model.recurrence.kernel_length": 4096})


def test_a_product_kernel_of_a_large_state_has_no_step() -> None:
    settings = msgspec.convert({"kind": "dlr", "cast": "prod"}, KINDS["dlr"].settings)
    assert dlr.LARGEST_PRODUCT == 128
    for state in (128, 129):
        layer = recurrences.build(settings, width=1, state=state)
        params = {name: jnp.ones(x.shape) for name, x in jax.eval_shape(layer.init, jax.random.key(0)).items()}
        if state == 128:
            jax.eval_shape(layer.step, params, layer.initial_state(1), jnp.ones((1, 1)))
            continue
        with pytest.raises(ValueError, match="up to state = 128, found state = 129"):
            layer.step(params, layer.initial_state(1), jnp.ones((1, 1)))
        assert jax.eval_shape(layer.scan, params, jnp.ones((4, 1, 1))).shape == (4, 1, 1)


def test_what_no_recurrence_takes() -> None:
    class Other(RecurrenceSettings, frozen=True, tag="other"):
        pass

    with pytest.raises(ValueError, match=f"{', '.join(KINDS)}, found 'other'"):
        recurrences.build(Other(), width=2, state=2)
    layer = recurrences.build(RNNSettings(), width=2, state=2)
    params = layer.init(jax.random.key(0))
    with pytest.raises(TypeCheckError, match="u"):
        layer.scan(params, jnp.zeros((4, 3, 2)), jnp.ones((4, 2), bool))  # another batch than the inputs'
    wrong = recurrences.build(VARIANTS["diagonal, normalised"], width=2, state=2, backend="parallel")
    with pytest.raises(ValueError, match="scan backend must be one of"):
        jax.eval_shape(wrong.scan, jax.eval_shape(wrong.init, jax.random.key(0)), jnp.zeros((4, 3, 2)))


class Faulty(RecurrenceSettings, frozen=True, tag="faulty"):
    faults: tuple[str, ...] = ()


class Leaky(recurrences.Recurrence):
    """A leaky sum of its inputs that has the faults in its settings."""

    recurrent_parameters = frozenset({"decay"})

    @property
    def variances(self):
        return {"D": 4.0 if "scale" in self.settings.faults else 1.0}

    def init(self, key):
        faults = self.settings.faults
        key = jax.random.key(0) if "key" in faults else key
        decay = jnp.full((1,), 0.5, jnp.float16 if "type" in faults else jnp.float32)
        return {
            "rate" if "group" in faults else "decay": decay,
            "D": jax.random.normal(key, (self.width,), jnp.float32),
        }

    def decay(self, params, dtype):
        return params["rate" if "group" in self.settings.faults else "decay"][0].astype(dtype)

    def scan(self, params, u, mask=None):
        faults, decay = self.settings.faults, self.decay(params, u.dtype)
        seen = u if mask is None or "padding" in faults else jnp.where(mask[..., None], u, 0.0)
        if "gradient" in faults:
            decay = jax.lax.stop_gradient(decay)

        def one_way(reverse):
            def body(x, u_k):
                x = decay * x + u_k
                return x, x

            return jax.lax.scan(body, jnp.zeros_like(u[0]), seen, reverse=reverse)[1]

        x = one_way(False)
        if (self.bidirectional and "one way" not in faults) or "causal" in faults:
            x = x + one_way(True)
        y = params["D"][None, None] * x
        return y * jnp.nan if "finite" in faults and len(u) > 1000 else y

    def initial_state(self, batch):
        return jnp.zeros((batch, self.width), jnp.float32)

    def step(self, params, state, u):
        if "refuse" not in self.settings.faults:
            self.require_causal()
        x = self.decay(params, u.dtype) * state + u
        return x, params["D"][None] * x * (2.0 if "step" in self.settings.faults else 1.0)


def either_way(name: str) -> set[str]:
    return {f"{name}, one direction", f"{name}, both directions"}


@pytest.mark.parametrize(
    ("faults", "caught"),
    [
        pytest.param((), set(), marks=pytest.mark.slow, id="none"),
        pytest.param(
            ("step", "gradient", "padding", "finite"),
            {
                "scan equals step",
                *either_way("gradients"),
                "padding does not leak, both directions",
                *either_way("finite"),
            },
            id="values",
        ),
        pytest.param(
            ("causal", "scale"), {"scan equals step", "causal", "initial scale"}, marks=pytest.mark.slow, id="causal"
        ),
        pytest.param(
            ("key", "type", "group", "one way", "refuse"),
            {
                "initial scale",
                "looks both ways",
                "step refuses both directions",
                *either_way("same key, same parameters"),
                *either_way("float32 throughout"),
                *either_way("recurrent parameters exist"),
            },
            marks=pytest.mark.slow,
            id="forms",
        ),
    ],
)
def test_the_checks_catch_what_they_are_for(monkeypatch: pytest.MonkeyPatch, faults: Any, caught: set[str]) -> None:
    monkeypatch.setitem(KINDS, "faulty", Declaration(settings=Faulty, implementation=Leaky))
    findings = conformance.check(Faulty(faults))
    assert {finding.name for finding in findings if not finding.passed} == caught


def test_a_check_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "faulty", Declaration(settings=Faulty, implementation=Leaky))
    monkeypatch.setattr(Leaky, "init", lambda self, key: 1 / 0)
    assert any("raised ZeroDivisionError" in finding.detail for finding in conformance.check(Faulty()))


@pytest.mark.slow
def test_forms_that_differ_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is off by a thousandth, and one that looks back from the current input on."""
    right = S4D.kernels

    def scan(self: Any, params: Any, u: Any, mask: Any = None) -> Any:
        found: Any = right(self, params, len(u))
        return convolution.convolve(u, found.at[1].set(jnp.roll(found[1], 1, axis=0)) if len(found) == 2 else found)

    monkeypatch.setattr(S4D, "kernels", lambda self, *args: right(self, *args).at[0].multiply(1.001))
    monkeypatch.setattr(S4D, "scan", scan)
    one, both = (
        conformance.Case(recurrences.build(S4DSettings(), bidirectional=two_way, width=4, state=8), jax.random.key(0))
        for two_way in (False, True)
    )
    assert not conformance._convolution_is_step(one)[0]
    assert not conformance._scan_is_convolution(one)[0]
    monkeypatch.setattr(S4D, "kernels", right)
    assert conformance._convolution_is_step(one)[0]
    assert conformance._scan_is_convolution(one)[0]
    assert not conformance._scan_is_convolution(both)[0]


def test_an_operation_that_accelerators_lack_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of initial values that are not declared as those of the CPU."""
    matrix = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    assert "['cuda', 'tpu']" in lowering.problem(jax.jit(jax.scipy.linalg.schur), matrix)
    assert lowering.problem(jax.scipy.linalg.expm, matrix) == ""
    layer = recurrences.build(RNNSettings(activation="identity", draw="remapped"), width=3, state=4)
    case = conformance.Case(layer, jax.random.key(0))
    assert conformance._lowers(case) == (True, "accelerators have all operations")
    monkeypatch.setattr(RNN, "init_on_cpu", False)
    passed, detail = conformance._lowers(case)
    assert not passed
    assert detail.startswith("init: MLIR translation rule for primitive 'eig' not found for platforms ['tpu']")


class Direct(Gated):
    """y = x + D u, where only an open gate lets the input into x: closed without an input of the gates."""

    recurrent_parameters = frozenset[str]()

    def init(self, key: Any) -> Any:
        return {"W": jax.random.normal(key, (self.state, self.width)), "D": jnp.ones(self.width)}

    def coefficients(self, params: Any, u: Any, seen: Any, first: Any) -> Any:
        gate = self.product(seen, params["W"])
        return jnp.broadcast_to(jnp.float32(0.5), gate.shape), gate * u.mean(-1, keepdims=True)

    def outputs(self, params: Any, x: Any, u: Any, seen: Any) -> Any:
        return x.mean(-1, keepdims=True) + expand(params["D"], u.ndim) * u


def test_a_control_that_forgets_all_inputs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class DirectSettings(GatedSettings, frozen=True, kw_only=True, tag="direct"):
        pass

    monkeypatch.setitem(KINDS, "direct", Declaration(settings=DirectSettings, implementation=Direct))
    variants = conformance.variants("direct")
    monkeypatch.setattr(conformance, "_EITHER_WAY", {})
    failed = {
        name: [(finding.name, finding.detail) for finding in conformance.check(variants[name]) if not finding.passed]
        for name in ("direct", "direct, gates = static")
    }
    rule = "no output depends on earlier inputs: those after a changed input changed by 0.0e+00"
    assert failed == {"direct": [], "direct, gates = static": [("causal", rule)]}


def test_a_recurrence_without_a_scan_takes_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Steps(recurrences.Recurrence):
        recurrent_parameters = frozenset({"a"})

        def init(self, key: Any) -> Any:
            b, c = jax.random.normal(key, (2, self.state, self.width)) / 4
            return {"a": jnp.linspace(0.1, 0.9, self.state), "B": b, "C": c.T}

        def initial_state(self, batch: int) -> Any:
            return jnp.zeros((batch, self.state))

        def step(self, params: Any, state: Any, u: Any) -> Any:
            x = params["a"][None] * state + self.product(u, params["B"])
            return x, self.product(x, params["C"])

    settings = registration._settings("steps", Steps)
    monkeypatch.setitem(KINDS, "steps", Declaration(settings=settings, implementation=Steps))
    findings = conformance.check(settings())
    assert not [finding for finding in findings if not finding.passed]
    assert ("both directions", "declared causal only, so not tested") in [(f.name, f.detail) for f in findings]
    with pytest.raises(ValueError, match='bidirectional must be false with kind = "steps", which is causal only'):
        settings().fits(width=4, state=4, bidirectional=True)
