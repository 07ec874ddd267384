#!/usr/bin/env bash
# One would guess: a training step compiles faster on a CPU with all parameters in one vector, because the optimiser is then
#   a few operations instead of a few for each parameter; and twelve layers of one size take twelve times what one takes.
# What happens: XLA's CPU compiler makes one kernel for all operations that are equal in everything but their operands, so
#   that twelve equal layers and their optimiser take one kernel more than four. Slices of one vector at different constant
#   places are different operations: the vector has twice as many kernels. Places that are data, not constants, give one
#   kernel for all slices of a size; constants behind an optimisation barrier are enough.
# Seen in: jax and jaxlib 0.12.0.1 on x86-64. In 0.10.2 the barrier does not help.
# Whom it hurts: who flattens parameters (as optax.flatten does) to compile faster, or judges compile time by the number of
#   operations: the time goes by the number of different ones.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.12.0.1 jaxlib==0.12.0.1
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2> /dev/null <<'PY'
import glob
import tempfile

import jax
import jax.numpy as jnp
from jax.profiler import ProfileData, ProfileOptions

LAYERS, WIDTH = 12, 32
SIZE = WIDTH * WIDTH
print(f"jax {jax.__version__}, {LAYERS} layers of {WIDTH} by {WIDTH}")


def loss(layers, x):
    """Two kinds of layers in turns."""
    for number, w in enumerate(layers):
        x = jnp.tanh(x @ w) if number % 2 else (jnp.sin(x) * 0.5) @ w
    return jnp.sum(jnp.square(x))


def adam(p, g, m, v):
    """One step without the correction of the bias."""
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v


def separate(p, m, v, x):
    """Each layer in an array of its own."""
    return [adam(*one) for one in zip(p, jax.grad(loss)(p, x), m, v)]


def constant(p):
    """Slices at places that the program knows."""
    return [p[number * SIZE : (number + 1) * SIZE].reshape(WIDTH, WIDTH) for number in range(LAYERS)]


def data(p):
    """Slices at places that are data."""
    starts = jax.lax.optimization_barrier(tuple(jnp.int32(number * SIZE) for number in range(LAYERS)))
    return jax.lax.optimization_barrier(
        [jax.lax.dynamic_slice(p, (start,), (SIZE,)).reshape(WIDTH, WIDTH) for start in starts]
    )


def in_a_vector(cut):
    """A step on one vector of all layers, which `cut` takes apart."""

    def step(p, m, v, x):
        """The vectors after a step."""
        return adam(p, jnp.concatenate([g.ravel() for g in jax.grad(loss)(cut(p), x)]), m, v)

    return step


def kernels(step, *arguments):
    """How many kernels XLA compiles, from its own trace of the compilation."""
    lowered, options = jax.jit(step).lower(*arguments), ProfileOptions()
    options.host_tracer_level, options.python_tracer_level = 3, 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            lowered.compile()
        [path] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        lines = [line for plane in ProfileData.from_file(path).planes for line in plane.lines]
        return sum(event.name == "FusionCompiler::Compile" for line in lines for event in line.events)


x, layers = jnp.ones((8, WIDTH)), [jnp.ones((WIDTH, WIDTH))] * LAYERS
vector = jnp.ones(LAYERS * SIZE)
found = {
    "an array for each layer": kernels(separate, layers, layers, layers, x),
    "four layers alone": kernels(separate, *[layers[:4]] * 3, x),
    "a vector, slices at constant places": kernels(in_a_vector(constant), vector, vector, vector, x),
    "a vector, slices at places that are data": kernels(in_a_vector(data), vector, vector, vector, x),
}
for name, count in found.items():
    print(f"{name}: {count} kernels")
every, four, at_constants, at_data = found.values()
if not (four >= every - 1 and at_constants >= 2 * every and at_data <= every):
    raise SystemExit("changed")
print("A vector of all parameters needs more kernels than separate arrays, unless its slices begin at data.")
PY
