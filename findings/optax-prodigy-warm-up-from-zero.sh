#!/usr/bin/env bash
# One would guess: Prodigy finds its own learning rate, and a warm-up, which its documentation recommends, only scales it; a
#   warm-up whose first step has the rate 0, as optax's warm-up schedules have by default, loses one step.
# What happens: the estimate is a quotient whose denominator sums gradients weighted by the rate. In the first step it is
#   0 / 0, the maximum of the estimate and NaN is NaN, and all parameters are NaN from then on. D-Adaptation does the same.
#   From any rate above zero on, as 1e-7, both train.
# Seen in: optax 0.2.8 with jax 0.10.2 and 0.12.0.1; the same where all gradients of the first step are zero.
# Whom it hurts: who puts Prodigy in the place of Adam in a training with warm-up: it ends as "diverged" at the second step,
#   which reads as a property of the optimiser.
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


def trained(make, schedule):
    """The parameters after 30 steps down a bowl."""
    optimiser, params = make(schedule), jnp.array([1.0, -2.0])
    state = optimiser.init(params)
    for _ in range(30):
        changes, state = optimiser.update(2.0 * params, state, params)
        params = optax.apply_updates(params, changes)
    return np.asarray(params)


from_zero = optax.warmup_constant_schedule(0.0, 1.0, 5)
from_little = optax.warmup_constant_schedule(1e-7, 1.0, 5)
for name, make in (("prodigy", optax.contrib.prodigy), ("dadapt_adamw", optax.contrib.dadapt_adamw)):
    zero, little = trained(make, from_zero), trained(make, from_little)
    print(f"{name}: warm-up from 0 ends at {zero}, from 1e-7 at {little}")
    assert np.isnan(zero).all() and np.isfinite(little).all()
adam = trained(optax.adam, from_zero)
print(f"adam: warm-up from 0 ends at {adam}")
assert np.isfinite(adam).all()
print("A warm-up from the rate 0 makes every parameter of optax's Prodigy and D-Adaptation NaN.")
PY
