"""Compares the layers and training steps of lrurun and of the original packages' own code, in turns in one process.

    python -m benchmarks.originals CHECKOUT [layer step] [--shape digits scifar listops long] [--rounds 5] [--seconds 2]

CHECKOUT is a clone of https://github.com/NicolasZucchet/minimal-LRU (layer and training step) or of
https://github.com/lindermanlab/S5 (layer), whose code is imported and run; it may need packages of its own. Ratios are
medians over rounds; above 1, the form is faster than the original.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from lrurun.bench import SHAPES, STEP_SHAPES, Result, Shape
from lrurun.bench.forms import CLASSES, FORMS, Form, inputs_of, layer_parameters, pixels, with_gradients
from lrurun.bench.serve import compiled, timed

Module = Any
"""A module of the checkout: nothing is known about its types."""


def forms(checkout: Path) -> dict[str, Any]:
    """What can be timed of a checkout: name in `FORMS` -> a function of a shape that makes it."""
    if (checkout / "lru/train_helpers.py").is_file():
        return {"layer": partial(_lru_layer, checkout), "step": partial(_lru_step, checkout)}
    if (checkout / "s5/ssm_init.py").is_file():
        return {"layer-s5": partial(_s5_layer, checkout)}
    raise SystemExit(f"{checkout}: expected a checkout of minimal-LRU (lru/train_helpers.py) or S5 (s5/ssm_init.py)")


def compare(what: str, original: Form, shape: Shape, rounds: int, seconds: float) -> list[Result]:
    """Times lrurun's form, and the published one where lrurun has it, beside the original."""
    sides = {"lrurun": FORMS[what](shape, True)}
    if what in ("layer", "step"):
        sides["published"] = FORMS[what](shape, False)
    sides["original"] = original
    turns = {name: timed(form, compiled(form)[0]) for name, form in sides.items()}
    times = [{name: turn(seconds) for name, turn in turns.items()} for _ in range(rounds)]
    return [
        Result.from_rounds(name, "original", [(one[name], one["original"]) for one in times])
        for name in sides
        if name != "original"
    ]


def _lru_layer(path: Path, shape: Shape) -> Form:
    """Forward and backward, with the parameters of our layer; the gradients of all of them and of the input."""
    (model,) = _modules(path, "lru", "model")
    lru = model.LRU(d_hidden=shape.state, d_model=shape.width)
    params = layer_parameters(shape)
    params["theta_log"] = jnp.log(params.pop("theta"))
    return _batched(lru, params, shape)


def _lru_step(path: Path, shape: Shape) -> Form:
    model, helpers = _modules(path, "lru", "model", "train_helpers")
    make = partial(
        model.BatchClassificationModel,
        lru=partial(model.LRU, d_hidden=shape.state, d_model=shape.width, r_min=0.9, r_max=0.999),
        d_output=CLASSES,
        d_model=shape.width,
        n_layers=shape.depth,
        norm="batch",
        prenorm=True,
    )
    state = helpers.create_train_state(
        make,
        jax.random.key(0),
        in_dim=1,
        batch_size=shape.batch,
        seq_len=shape.length,
        weight_decay=0.05,
        norm="batch",
        ssm_lr=0.25e-3,
        lr=1e-3,
    )
    inputs, labels = pixels(shape)
    batch = (
        jax.random.key(1),
        jnp.asarray(inputs[: shape.batch, :, None] / 255, jnp.float32),
        jnp.asarray(labels[: shape.batch], jnp.int32),
        jnp.ones((shape.batch, shape.length)),
    )
    network = make(training=True)
    step = jax.jit(lambda state, *batch: helpers.train_step(state, *batch, network, "batch"))
    return Form(step, lambda result: (result[0], *batch), (state, None))


def _s5_layer(path: Path, shape: Shape) -> Form:
    """Forward and backward, with as many complex states as ours: without conjugate pairs."""
    with _removed_type():
        ssm, init = _modules(path, "s5", "ssm", "ssm_init")
    eigenvalues, _, _, vectors, _ = init.make_DPLR_HiPPO(shape.state)
    layer = ssm.init_S5SSM(
        H=shape.width,
        P=shape.state,
        Lambda_re_init=eigenvalues.real,
        Lambda_im_init=eigenvalues.imag,
        V=vectors,
        Vinv=vectors.conj().T,
        C_init="lecun_normal",
        discretization="zoh",
        dt_min=0.001,
        dt_max=0.1,
        conj_sym=False,
        clip_eigs=False,
        bidirectional=False,
    )()
    u = jnp.zeros((shape.length, shape.width))
    return _batched(layer, layer.init(jax.random.key(0), u)["params"], shape)


def _batched(layer: Module, params: dict[str, Any], shape: Shape) -> Form:
    """Of a layer that takes one sequence (L, H)."""
    u, w = (jnp.swapaxes(x, 0, 1) for x in inputs_of(shape))

    def apply(params: dict[str, Any], u: jax.Array) -> Any:
        return jax.vmap(lambda one: layer.apply({"params": params}, one))(u)

    return with_gradients(apply, w, params, u)


def _modules(path: Path, package: str, *names: str) -> list[ModuleType]:
    """Modules of a package in `path`. Search path and known modules stay as they are."""
    known = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    parent = ModuleType(package)
    parent.__path__ = [str(path / package)]
    for name in known:
        del sys.modules[name]
    sys.modules[package] = parent
    try:
        return [importlib.import_module(f"{package}.{name}") for name in names]
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
        sys.modules.update(known)


@contextlib.contextmanager
def _removed_type() -> Iterator[None]:
    """S5's annotations name `jax.numpy.DeviceArray`, which newer releases of jax lack: it is `jax.Array` meanwhile."""
    if hasattr(jnp, "DeviceArray"):
        yield
        return
    jnp.DeviceArray = jax.Array  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del jnp.DeviceArray  # type: ignore[attr-defined]


def main() -> None:
    """Measure, and print a line for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("what", nargs="*", help="layer, step [what the checkout has]")
    parser.add_argument("--shape", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    options = parser.parse_args()
    known = forms(options.checkout)
    if wrong := [name for name in options.what if not any(what.startswith(name) for what in known)]:
        parser.error(f"{options.checkout} has {' and '.join(known)}, found {wrong[0]!r}")
    for what, make in known.items():
        if options.what and not what.startswith(tuple(options.what)):
            continue
        for name in options.shape:
            shape = (STEP_SHAPES if what == "step" else SHAPES)[name]
            for result in compare(what, make(shape), shape, options.rounds, options.seconds):
                low, high = result.interval
                print(
                    f"{what}/{name}: {result.name} {1e3 * result.ours:.3g} ms, original {1e3 * result.theirs:.3g} ms: "
                    f"{result.ratio:.2f} ({low:.2f} to {high:.2f}) times as fast",
                    flush=True,
                )


if __name__ == "__main__":
    main()
