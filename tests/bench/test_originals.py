"""`benchmarks/originals.py` measures the code of a checkout; here, of small packages with the same interface."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

from benchmarks import originals
from lrurun.bench import Shape, forms

SHAPE = Shape(3, 16, 6, 5)

LRU_MODEL = """
    import jax
    import jax.numpy as jnp
    from flax import linen as nn

    class LRU(nn.Module):
        d_hidden: int
        d_model: int
        r_min: float = 0.0
        r_max: float = 1.0

        @nn.compact
        def __call__(self, u):
            def param(name, *shape):
                return self.param(name, nn.initializers.uniform(0.5), shape)

            n, h = self.d_hidden, self.d_model
            lam = jnp.exp(-jnp.exp(param("nu_log", n)) + 1j * jnp.exp(param("theta_log", n)))
            b = (param("B_re", n, h) + 1j * param("B_im", n, h)) * jnp.exp(param("gamma_log", n))[:, None]
            c = param("C_re", h, n) + 1j * param("C_im", h, n)

            def step(x, v):
                x = lam * x + v
                return x, x

            states = jax.lax.scan(step, jnp.zeros(n, jnp.complex64), u @ b.T)[1]
            return (states @ c.T).real + param("D", h) * u

    class BatchClassificationModel(nn.Module):
        lru: object
        d_output: int
        d_model: int
        n_layers: int
        norm: str
        prenorm: bool
        training: bool

        @nn.compact
        def __call__(self, x):
            x = nn.BatchNorm(use_running_average=not self.training)(nn.Dense(self.d_model)(x))
            for _ in range(self.n_layers):
                x = x + jax.vmap(self.lru())(x)
            return nn.log_softmax(nn.Dense(self.d_output)(x.mean(1)))
"""

LRU_HELPERS = """
    from functools import partial
    from typing import Any

    import jax
    import jax.numpy as jnp
    import optax
    from flax.training import train_state

    class State(train_state.TrainState):
        batch_stats: Any

    def create_train_state(model_cls, rng, in_dim, batch_size, seq_len, weight_decay, norm, ssm_lr, lr):
        print("this must not reach stdout")
        model = model_cls(training=True)
        variables = model.init(rng, jnp.ones((batch_size, seq_len, in_dim)))
        tx = optax.adamw(lr, weight_decay=weight_decay)
        return State.create(apply_fn=None, params=variables["params"], tx=tx, batch_stats=variables["batch_stats"])

    @partial(jax.jit, static_argnums=(5, 6))
    def train_step(state, rng, inputs, labels, masks, model, norm):
        def loss(params):
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, updated = model.apply(variables, inputs, mutable=["batch_stats"])
            return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1)), updated

        (found, updated), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=gradients, batch_stats=updated["batch_stats"]), found
"""


def write(folder: Path, **files: str) -> Path:
    """A checkout of one package, of files named "package__module"."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


@pytest.fixture(autouse=True)
def as_users_have_it() -> Iterator[None]:
    """Arrays of unequal rank broadcast, as they do for everybody but these tests."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def minimal_lru(tmp_path: Path) -> Path:
    return write(tmp_path / "checkout", lru__model=LRU_MODEL, lru__train_helpers=LRU_HELPERS)


@pytest.mark.slow
def test_the_layer_of_a_checkout_has_our_parameters_and_numbers(minimal_lru: Path) -> None:
    original = originals.forms(minimal_lru)["layer"](SHAPE)
    results = originals.compare("layer", original, SHAPE, rounds=2, seconds=0.001)
    assert [(one.name, one.against, len(one.ratios)) for one in results] == [
        ("lrurun", "original", 2),
        ("published", "original", 2),
    ]
    published = forms.layer(SHAPE, ours=False)
    (y, (params, u)), (y_published, (params_published, u_published)) = (
        one.function(*one.arguments(one.state)) for one in (original, published)
    )
    theta = forms.layer_parameters(SHAPE)["theta"]
    params["theta"] = params.pop("theta_log") / theta  # the gradient of the phase itself
    for one, two in ((y, y_published), (u, u_published), (params, params_published)):
        assert jax.tree.structure(one) == jax.tree.structure(two)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(b).max()), one, two)


@pytest.mark.slow
def test_the_training_step_of_a_checkout_trains(minimal_lru: Path) -> None:
    form = originals.forms(minimal_lru)["step"](SHAPE._replace(depth=2))
    state, losses = form.state, []
    run = form.function.lower(*form.arguments(state)).compile()
    for _ in range(8):
        state = run(*form.arguments(state))
        losses.append(float(state[1]))
    assert losses[-1] < losses[0]
    assert int(state[0].step) == 8


def test_nothing_of_a_checkout_stays_imported(minimal_lru: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ModuleType("lru")  # another package of this name
    monkeypatch.setitem(sys.modules, "lru", installed)
    path, modules = list(sys.path), set(sys.modules)
    originals.forms(minimal_lru)["layer"](SHAPE)
    assert sys.path == path
    assert sys.modules["lru"] is installed
    assert not {name for name in set(sys.modules) - modules if name.startswith("lru.")}


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"expected a checkout of minimal-LRU \(lru/train_helpers.py\) or S5"):
        originals.forms(tmp_path)
