"""The original packages' own code, from a checkout, for `lrurun bench --against PATH`. Importing it runs it."""

from __future__ import annotations

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

from lrurun.bench import Shape, original_in
from lrurun.bench.forms import CLASSES, Form, inputs_of, layer_parameters, pixels, with_gradients
from lrurun.errors import LrurunError

Module = Any
"""Of the checkout: nothing is known about its types."""


def form(path: Path, what: str, shape: Shape) -> Form:
    """What is timed of the checkout at `path`."""
    make = {("minimal-LRU", "layer"): _lru_layer, ("minimal-LRU", "step"): _lru_step, ("S5", "layer-s5"): _s5_layer}
    return make[original_in(path).package, what](path, shape)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Explains what goes wrong in the code of the checkout at `path`.

    Raises:
        LrurunError: a package that it imports is not installed, or it does not work with the installed ones.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise LrurunError(
            f"{path}: its code imports {error.name}, which is not installed", f"pip install {error.name}"
        ) from None
    except Exception as error:
        raise LrurunError(
            f"{path}: its code does not work with jax {jax.__version__}: {type(error).__name__}: {error}",
            "update the checkout: git pull",
        ) from None


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
