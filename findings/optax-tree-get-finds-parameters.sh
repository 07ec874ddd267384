#!/usr/bin/env bash
# One would guess: optax.tree.get(state, "nu") reads Adam's second moments, and optax.tree.set(state, learning_rate=...)
#   changes a learning rate or fails: names are those of fields of the optimiser's states.
# What happens: keys of dictionaries count too, and moments are dictionaries with the names of the parameters. With a
#   parameter called "nu", as of an LRU, get fails for Adam, because it finds the name three times; for SGD with momentum,
#   whose state has no "nu", it returns the momentum of that parameter. set writes over the momentum of a parameter
#   called "learning_rate", without an error.
# Seen in: optax 0.2.8 with jax 0.10.2 and 0.12.0.1.
# Whom it hurts: who reads or changes an optimiser's state by name, for models whose parameters have names such as nu, mu,
#   count or trace: a plot or a schedule uses the wrong array. `filtering` can restrict it to fields of named tuples.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet optax==0.2.8 jax==0.10.2
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PY'
import jax
import jax.numpy as jnp
import optax

print(f"optax {optax.__version__}, jax {jax.__version__}")
params = {"nu": jnp.float32(3.0), "weights": jnp.ones(2)}
try:
    optax.tree.get(optax.adam(1e-3).init(params), "nu")
    of_adam = "found"
except KeyError as error:
    of_adam = str(error)[:40]
of_sgd = optax.tree.get(optax.sgd(1e-3, momentum=0.9).init(params), "nu")
print(f"Adam: {of_adam}...")
print(f"SGD with momentum, which has no nu: {of_sgd!r}")
momentum = optax.sgd(1e-3, momentum=0.9).init({"learning_rate": jnp.float32(3.0), "weights": jnp.ones(2)})
changed = optax.tree.set(momentum, learning_rate=0.5)[0].trace["learning_rate"]
print(f"the momentum of the parameter learning_rate after set: {changed}")


def is_field(path, _):
    """Takes the field of a named tuple."""
    return hasattr(path[-1], "tuple_name")


by_field = optax.tree.get(optax.adam(1e-3).init(params), "nu", filtering=is_field)
print(f"with filtering: {sorted(by_field)}")
if not ("multiple" in of_adam and of_sgd is not None and changed == 0.5 and sorted(by_field) == ["nu", "weights"]):
    raise SystemExit("changed")
print("Names of parameters are found among the names of the optimiser's state.")
PY
