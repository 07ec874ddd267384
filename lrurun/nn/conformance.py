"""Checks that every recurrence must pass, plug-ins too: for the tests and `lrurun check recurrence`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lrurun.config.plugin_checks import Finding, guarded, other_choices, without_repeats
from lrurun.config.recurrences import KINDS
from lrurun.nn import lowering, recurrences
from lrurun.nn.recurrences import Params, Recurrence
from lrurun.nn.recurrences.lru import LRU
from lrurun.nn.scan import split

LONG = 4096
"""Steps for which outputs must stay finite."""

UNBOUNDED = 64
"""Steps for which the outputs of a recurrence that declares itself unbounded must stay finite."""

_BATCH, _STEPS = 3, 24


def variants(kind: str) -> dict[str, Any]:
    """Name -> settings of a recurrence; together they cover all of its features.

    For a plug-in: the defaults, and each other value of a boolean or a choice.
    """
    make = KINDS[kind].settings
    if KINDS[kind].variants:
        return {f"{kind}, {name}" if name else kind: make(**table) for name, table in KINDS[kind].variants.items()}
    others = {f"{kind}, {field} = {choice}": make(**{field: choice}) for field, choice in other_choices(make())}
    return {kind: make(), **others}


def unvaried(kind: str) -> list[str]:
    """The settings, other than real numbers, that have the same value in all variants, or not each of their choices."""
    fields = []
    for field, hint in get_type_hints(KINDS[kind].settings).items():
        values = {getattr(settings, field) for settings in variants(kind).values()}
        choices = {False, True} if hint is bool else set(get_args(hint)) if get_origin(hint) is Literal else set()
        if hint is not float and (len(values) == 1 or not choices <= values):
            fields.append(field)
    return fields


def check(settings: Any, *, width: int = 12, state: int = 16, seed: int = 0, backend: str = "auto") -> list[Finding]:
    """Checks the recurrence that `settings` describe, in one direction and, unless it is causal only, in both.

    `width` is H, N where each feature has a state of its own; `state` is N. An exception in a check is a finding that
    failed.
    """
    width = state if settings.elementwise else width
    causal_only = KINDS[str(settings.__struct_config__.tag)].load().causal_only
    cases = [
        Case(
            recurrences.build(settings, width=width, state=state, bidirectional=two_way, backend=backend),
            jax.random.key(seed),
        )
        for two_way in ((False,) if causal_only else (False, True))
    ]
    causal, two_way_case = cases[0], cases[-1]
    findings = [guarded("scan equals step", _scan_is_step, causal), guarded("causal", _causal, causal)]
    for case, way in zip(cases, ("one direction", "both directions"), strict=False):
        for name, test in _EITHER_WAY.items():
            findings.append(guarded(f"{name}, {way}", test, case))
        if type(case.recurrence).kernels is not Recurrence.kernels:
            findings.append(guarded(f"scan equals convolution, {way}", _scan_is_convolution, case))
        if type(case.recurrence).scan_and_norms is not Recurrence.scan_and_norms:
            findings.append(guarded(f"scan and norms, {way}", scan_and_norms, case))
    if type(causal.recurrence).kernels is not Recurrence.kernels:
        findings.append(guarded("convolution equals step", _convolution_is_step, causal))
    findings.append(guarded("lowers for cuda and tpu", _lowers, two_way_case))
    if causal_only:
        findings.append(Finding("both directions", True, "declared causal only, so not tested"))
    else:
        findings.append(guarded("looks both ways", _both_ways, two_way_case))
        findings.append(guarded("step refuses both directions", _refuses, two_way_case))
    findings.append(guarded("initial scale", _scale, two_way_case))
    if isinstance(causal.recurrence, LRU):
        findings.append(guarded("norm of the state", _state_norm, causal))
    return without_repeats(findings)


class Case:
    """A recurrence with its parameters and compiled functions, which the checks share: compiling takes longest."""

    def __init__(self, recurrence: Recurrence, key: Array) -> None:
        self.recurrence = recurrence
        self.key = key
        self._init = jax.jit(lambda k: recurrence.init(k))
        self.scan = jax.jit(lambda params, u, mask: recurrence.scan(params, u, mask))

    def init(self, key: Array) -> Params:
        """Initial parameters, made on the CPU if the recurrence needs that."""
        if not self.recurrence.init_on_cpu:
            return self._init(key)
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return {name: jnp.asarray(array) for name, array in jax.device_get(self._init(key)).items()}

    @cached_property
    def params(self) -> Params:
        return self.init(self.key)

    @cached_property
    def inputs(self) -> np.ndarray:
        return self.sequence(_STEPS, _BATCH)

    def sequence(self, steps: int, batch: int) -> np.ndarray:
        shape = (steps, batch, self.recurrence.width)
        return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _moved(u: np.ndarray, at: int) -> np.ndarray:
    """The inputs `u` (T, B, H), one larger at one step."""
    other = u.copy()
    other[at] += 1.0
    return other


_Check = Callable[[Case], tuple[bool, str]]


def _deviation(actual: Any, wanted: Any) -> float:
    """Largest difference relative to the largest wanted value; infinite if either is not finite."""
    actual, wanted = np.asarray(actual, np.float64), np.asarray(wanted, np.float64)
    difference = float(np.max(np.abs(actual - wanted)) / max(float(np.max(np.abs(wanted))), 1e-30))
    return difference if math.isfinite(difference) else math.inf


def _lengths_mask(steps: int) -> np.ndarray:
    """(T, B): the first sequence is full, the second half as long, the third of length 1."""
    return np.arange(steps)[:, None] < np.array([steps, steps // 2, 1])[None, :]


def _scan_is_step(case: Case) -> tuple[bool, str]:
    recurrence, params, u = case.recurrence, case.params, case.inputs
    x, outputs = recurrence.initial_state(_BATCH), []
    step = jax.jit(recurrence.step)
    for u_k in u:
        x, y = step(params, x, u_k)
        outputs.append(np.asarray(y))
    worst = _deviation(case.scan(params, u, None), np.stack(outputs))
    return worst < 1e-5, f"relative difference {worst:.1e}, at most 1e-05"


def scan_and_norms(case: Case) -> tuple[bool, str]:
    """Compares `scan_and_norms` with `scan`, and its norms at real positions with `norms`; in chunks, if it has any."""
    recurrence, params, u, mask = case.recurrence, case.params, case.inputs, _lengths_mask(_STEPS)
    chunks = recurrence.chunks(_STEPS, _BATCH)

    @jax.jit
    def outputs_and_norms(u: Array, mask: Array) -> tuple[Array, Array, Array, Array]:
        """The outputs of both functions (T, *K, B, H), and the norms of both (T, B)."""
        inputs, real = (split(u, chunks), split(mask, chunks)) if chunks > 1 else (u, mask)
        y, norms = recurrence.scan_and_norms(params, inputs, real)
        return y, recurrence.scan(params, inputs, real), norms(), recurrence.norms(params, u)

    y, wanted, norms, norms_of_steps = (np.asarray(array) for array in outputs_and_norms(u, mask))
    worst = max(_deviation(y, wanted), _deviation(norms[mask], norms_of_steps[mask]))
    return worst < 1e-5, f"relative difference {worst:.1e}, at most 1e-05"


_NO_KERNELS: Final = (True, "these settings have no convolution kernel")


def _scan_is_convolution(case: Case) -> tuple[bool, str]:
    """Compares the scan with the convolution in float64, so that 24 steps show any difference that is not rounding."""
    recurrence = case.recurrence
    with jax.enable_x64(True):
        params = {name: jnp.asarray(np.asarray(array, np.float64)) for name, array in case.params.items()}
        u = np.asarray(case.inputs, np.float64)
        kernels = jax.jit(recurrence.kernels, static_argnums=1)(params, _STEPS)
        if kernels is None:
            return _NO_KERNELS
        ahead, y = np.asarray(kernels), np.asarray(jax.jit(recurrence.scan)(params, jnp.asarray(u)))
    wanted = np.zeros(u.shape)
    for k in range(_STEPS):
        wanted[k:] += ahead[0, k] * u[: _STEPS - k]
        if recurrence.bidirectional:
            wanted[: _STEPS - k - 1] += ahead[1, k] * u[k + 1 :]
    worst = _deviation(y, wanted)
    return worst < 1e-10, f"relative difference in double precision {worst:.1e}, at most 1e-10"


def _convolution_is_step(case: Case) -> tuple[bool, str]:
    """Compares the convolution with steps in float32, over many steps. Each step multiplies by a rounded eigenvalue,
    so the error grows with the steps."""
    recurrence, params = case.recurrence, case.params
    steps = LONG if recurrence.bounded else UNBOUNDED
    kernels = jax.jit(recurrence.kernels, static_argnums=1)(params, steps)
    if kernels is None:
        return _NO_KERNELS
    impulse = np.zeros((steps, 1, recurrence.width), np.float32)
    impulse[0] = 1.0
    start = recurrence.initial_state(1)
    y = jax.jit(lambda u: jax.lax.scan(lambda x, u_k: recurrence.step(params, x, u_k), start, u)[1])(impulse)
    kernel, wanted = np.asarray(kernels, np.float64)[0], np.asarray(y, np.float64)[:, 0]
    allowed = (8 + np.arange(steps)[:, None]) * 2.0**-22
    worst = float(np.max(np.abs(kernel - wanted) / (allowed * np.max(np.abs(wanted)))))
    return worst < 1, f"largest difference {worst:.2f} of the (8 + k) 2^-22 allowed after k steps"


def _causal(case: Case) -> tuple[bool, str]:
    params, u = case.params, case.inputs
    at = _STEPS // 2
    before, after = (np.asarray(case.scan(params, x, None)) for x in (u, _moved(u, at)))
    change = np.abs(before - after)
    early, late, following = (float(np.max(change[part])) for part in (slice(at), slice(at, None), slice(at + 1, None)))
    # not exactly zero: a scan of logarithmic depth may round differently
    scale = float(np.max(np.abs(before)))
    if following <= 1e-6 * scale:
        return False, f"no output depends on earlier inputs: those after a changed input changed by {following:.1e}"
    return (
        early <= 1e-6 * scale and late > 1e-3 * scale,
        f"earlier outputs changed by {early:.1e}, later ones by {late:.1e}",
    )


def _both_ways(case: Case) -> tuple[bool, str]:
    params, u = case.params, case.sequence(4, _BATCH)
    y, last, first = (np.asarray(case.scan(params, x, None)) for x in (u, _moved(u, -1), _moved(u, 0)))
    smallest = min(np.max(np.abs(last[0] - y[0])), np.max(np.abs(first[-1] - y[-1]))) / np.max(np.abs(y))
    return (
        smallest > 1e-5,
        f"first and last of 4 steps change each other by {smallest:.1e} of the output, at least 1e-05",
    )


def _refuses(case: Case) -> tuple[bool, str]:
    recurrence, params, u = case.recurrence, case.params, case.inputs
    try:
        recurrence.step(params, recurrence.initial_state(_BATCH), jnp.asarray(u[0]))
    except ValueError as error:
        return True, str(error)
    return False, "step returned an output, although it depends on later inputs"


def _reproducible(case: Case) -> tuple[bool, str]:
    params, repeated, different = case.params, case.init(case.key), case.init(jax.random.fold_in(case.key, 2))
    equal = all(np.array_equal(params[name], repeated[name]) for name in params)
    differs = any(not np.array_equal(params[name], different[name]) for name in params)
    return (
        equal and differs,
        f"same key: {'equal' if equal else 'different'}; other key: {'new' if differs else 'equal'}",
    )


def _float32(case: Case) -> tuple[bool, str]:
    recurrence, params = case.recurrence, case.params
    u = jax.ShapeDtypeStruct((_STEPS, _BATCH, recurrence.width), jnp.float32)
    y = jax.eval_shape(recurrence.scan, params, u)
    wrong = sorted(name for name, leaf in params.items() if leaf.dtype != jnp.float32)
    passed = not wrong and y.dtype == jnp.float32 and y.shape == u.shape
    return passed, f"outputs {y.dtype} {y.shape}, parameters of another type: {', '.join(wrong) or 'none'}"


def _gradients(case: Case) -> tuple[bool, str]:
    """Gradients in float32 against central differences in float64, in one random direction for each array."""
    recurrence, params, u, mask = case.recurrence, case.params, case.inputs, _lengths_mask(_STEPS)
    rng = np.random.default_rng(0)
    # outputs at padding are arbitrary, so the loss leaves them out
    weight = np.asarray(rng.normal(size=u.shape) * mask[..., None], np.float32)

    def loss(arrays: Params, weight: Any, mask: Any) -> Array:
        """() from outputs weighted by `weight` (T, B, H), for `mask` (T, B)."""
        rest = {name: array for name, array in arrays.items() if name != "inputs"}
        return jnp.sum(weight * recurrence.scan(rest, arrays["inputs"], mask))

    arrays = {**params, "inputs": u}
    gradient = {name: np.asarray(g) for name, g in jax.jit(jax.grad(loss))(arrays, weight, mask).items()}
    host = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
    worst, where = 0.0, ""
    with jax.enable_x64(True):
        value = jax.jit(loss)
        for name, array in host.items():
            direction = rng.normal(size=array.shape)
            h = 1e-6 * max(float(np.max(np.abs(array))), 1e-3)
            ends = [
                float(value({**host, name: array + s * h * direction}, weight.astype(np.float64), mask))
                for s in (1, -1)
            ]
            wanted, computed = (ends[0] - ends[1]) / (2 * h), float(np.sum(gradient[name] * direction))
            scale = float(np.linalg.norm(gradient[name]) * np.linalg.norm(direction) / math.sqrt(array.size))
            error = abs(computed - wanted) / max(scale, 1e-30)
            if not error <= worst:
                worst, where = error, name
    return worst < 1e-3, f"largest relative error {worst:.1e} ({where}), at most 1e-03"


def _padding(case: Case) -> tuple[bool, str]:
    params, u, mask = case.params, case.inputs, _lengths_mask(_STEPS)
    y = np.asarray(case.scan(params, u, mask))
    changed = np.asarray(case.scan(params, np.where(mask[..., None], u, np.float32(7.0)), mask))
    alone = np.asarray(case.scan(params, u[: _STEPS // 2, 1:2], None))
    moved = float(np.max(np.abs(y - changed)[mask]))
    apart = _deviation(y[: _STEPS // 2, 1:2], alone)
    passed = moved <= 1e-6 * float(np.max(np.abs(y[mask])))
    if case.recurrence.mixes_sequences:
        return passed, f"real outputs changed by {moved:.1e}; declared to mix the sequences of a batch"
    passed = passed and apart < 1e-5
    return passed, f"real outputs changed by {moved:.1e}; {apart:.1e} from the same sequence without padding"


def _finite(case: Case) -> tuple[bool, str]:
    recurrence, params = case.recurrence, case.params
    steps = LONG if recurrence.bounded else UNBOUNDED
    u = jnp.asarray(case.sequence(steps, 2))

    def loss(p: Params) -> tuple[Array, Array]:
        """The mean square () of the outputs, and the outputs (T, B, H)."""
        y = recurrence.scan(p, u)
        return jnp.mean(y * y), y

    gradient, y = jax.jit(jax.grad(loss, has_aux=True))(params)
    finite = all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in (y, *gradient.values()))
    claim = "" if recurrence.bounded else f" (declared unbounded, so not tested at {LONG})"
    return finite, f"outputs and gradients at {steps} steps{claim}"


def _recurrent_group(case: Case) -> tuple[bool, str]:
    names = case.recurrence.recurrent_parameters | case.recurrence.undecayed_parameters
    unknown = sorted(names - set(case.params))
    return not unknown, f"unknown: {', '.join(unknown)}" if unknown else ", ".join(sorted(names)) or "none"


def _lowers(case: Case) -> tuple[bool, str]:
    """Whether accelerators have the operations of the recurrence, with scans in the form for accelerators."""
    recurrence = case.recurrence
    on_accelerator = recurrences.build(
        recurrence.settings,
        width=recurrence.width,
        state=recurrence.state,
        bidirectional=recurrence.bidirectional,
        backend=lowering.BACKEND,
    )
    problems = lowering.problems(on_accelerator, _STEPS, _BATCH)
    return not problems, "; ".join(
        f"{name}: {text}" for name, text in problems.items()
    ) or "accelerators have all operations"


_EITHER_WAY: Final[dict[str, _Check]] = {
    "same key, same parameters": _reproducible,
    "float32 throughout": _float32,
    "gradients": _gradients,
    "padding does not leak": _padding,
    "finite": _finite,
    "recurrent parameters exist": _recurrent_group,
}


def _scale(case: Case) -> tuple[bool, str]:
    """Means and variances over many layers, against the declared ones."""
    layers = [case.init(key) for key in jax.random.split(case.key, 100)]
    worst, where = 0.0, "none declared"
    for name, variance in case.recurrence.variances.items():
        sample = np.stack([np.asarray(layer[name], np.float64) for layer in layers]).ravel() / math.sqrt(variance)
        # in standard errors: 1 / sqrt(n) for the mean of unit normals, sqrt(2 / n) for their variance
        for error in (abs(sample.mean()) * math.sqrt(sample.size), abs(sample.var() - 1) * math.sqrt(sample.size / 2)):
            if not error <= worst:
                worst, where = float(error), name
    return worst < 5, f"largest deviation {worst:.1f} standard errors ({where}), at most 5"


def _state_norm(case: Case) -> tuple[bool, str]:
    """E|x_L|^2 = gamma^2 (1 - |lambda|^(2L)) / (1 - |lambda|^2) E|B u|^2 for white u (LRU paper, prop. 3.3)."""
    recurrence, params, batch, steps = case.recurrence, case.params, 512, 100
    assert isinstance(recurrence, LRU)
    u = case.sequence(steps, batch)
    final = jax.jit(lambda x, u: jax.lax.scan(lambda x, u_k: (recurrence.step(params, x, u_k)[0], None), x, u)[0])
    measured = np.mean(np.abs(final(recurrence.initial_state(batch), u).numpy()) ** 2, axis=0)
    nu = np.asarray(recurrence.parametrization.decay_and_phase(params)[0], np.float64)
    driven = sum(np.sum(np.square(np.asarray(params[name], np.float64)), axis=1) for name in ("B_re", "B_im"))
    gain = np.expm1(-2 * nu * steps) / np.expm1(-2 * nu)
    if "gamma_log" in params:
        gamma_log = np.asarray(params["gamma_log"], np.float64)  # one per state or per head
        gain = gain * np.exp(2 * np.repeat(gamma_log, nu.size // gamma_log.size))
    elif recurrence.settings.normalize:
        gain = gain * -np.expm1(-2 * nu)
    ratio = measured / (gain * driven)
    # the variance of |x|^2 is at most the variance of chi-squared with one degree of freedom: deviation sqrt(2 / batch)
    worst = float(np.max(np.abs(ratio - 1)) / math.sqrt(2 / batch))
    return (
        worst < 5,
        f"mean of measured / expected {np.mean(ratio):.3f}, worst state {worst:.1f} standard errors, at most 5",
    )
