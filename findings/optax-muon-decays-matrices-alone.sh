#!/usr/bin/env bash
# One would guess: muon(rate, weight_decay=0.1) decays all parameters, as adamw(rate, weight_decay=0.1) does whose place it
#   takes; and layers that are stacked into one array for a scan over them are matrices as before.
# What happens: weight_decay is that of the arrays with two axes. All others are trained by AdamW, with the Nesterov momentum
#   that Muon has by default, and with a decay of its own, adam_weight_decay, which is 0. A stack of matrices has three axes:
#   it goes the same way, without a word, so that a network of scanned blocks has no Muon but in its embedding and head.
# Seen in: optax 0.2.8 with jax 0.10.2 and 0.12.0.1. muon_weight_dimension_numbers names the axes of other arrays.
# Whom it hurts: who compares Muon with AdamW: the one has less decay than the other, or is AdamW itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 optax==0.2.8
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2> /dev/null <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
import optax

print(f"optax {optax.__version__}, jax {jax.__version__}")
rng = np.random.default_rng(0)
layers = rng.normal(size=(3, 4, 4)).astype(np.float32)
gradients = rng.normal(size=(3, 4, 4)).astype(np.float32)


def step(optimiser, params, gradient):
    """The change of parameters in the first step."""
    return jax.tree.map(np.asarray, optimiser.update(gradient, optimiser.init(params), params)[0])


muon, adamw = optax.contrib.muon(0.1, weight_decay=0.5), optax.adamw(0.1, weight_decay=0.5)
params = {"matrix": jnp.ones((2, 2)), "bias": jnp.ones(2)}
still = jax.tree.map(jnp.zeros_like, params)
decayed = {name: step(optimiser, params, still) for name, optimiser in (("muon", muon), ("adamw", adamw))}
for name, change in decayed.items():
    print(f"{name}, gradient zero, weight_decay 0.5: matrix moves by {change['matrix'][0, 0]:.3f}, bias by {change['bias'][0]:.3f}")
assert decayed["adamw"]["bias"][0] == decayed["adamw"]["matrix"][0, 0] == decayed["muon"]["matrix"][0, 0] < 0
assert decayed["muon"]["bias"][0] == 0

plain = optax.contrib.muon(0.1)
alone = np.stack([step(plain, jnp.asarray(p), jnp.asarray(g)) for p, g in zip(layers, gradients, strict=True)])
stacked = step(plain, jnp.asarray(layers), jnp.asarray(gradients))
adam = step(optax.nadam(0.1), jnp.asarray(layers), jnp.asarray(gradients))
print(f"three matrices: stacked, the step differs from Muon's by up to {np.abs(stacked - alone).max():.3f},"
      f" from that of Adam with Nesterov momentum by up to {np.abs(stacked - adam).max():.1e}")
assert np.abs(stacked - alone).max() > 0.05 and np.abs(stacked - adam).max() < 1e-3
print("optax's Muon decays arrays of two axes alone, and trains stacked matrices by Adam.")
PY
