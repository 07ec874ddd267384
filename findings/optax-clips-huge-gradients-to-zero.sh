#!/usr/bin/env bash
# One would guess: clip_by_global_norm(1.0) makes of an exploding gradient, however large, one of norm 1 in the same
#   direction; that is what clipping is for.
# What happens: the norm is the root of a sum of squares in float32, which overflows where the norm is above 1.8e19. The
#   gradient, all of whose numbers are finite, is divided by infinity: the update is exactly zero, without NaN and without
#   a warning. clip_by_block_rms does the same for each array.
# Seen in: optax 0.2.8 with jax 0.10.2 and 0.12.0.1.
# Whom it hurts: recurrent networks with eigenvalues outside the unit circle. Their loss stays finite, the curve is flat, and
#   the run ends as trained: it looks as if it could not learn, where a smaller first step would have been enough.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 optax==0.2.8
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2> /dev/null <<'PY'
import jax
import jax.numpy as jnp
import optax

print(f"optax {optax.__version__}, jax {jax.__version__}")


@jax.jit
def slope(a):
    """The derivative of a recurrent state, linear with the eigenvalue a, after 120 steps."""
    return jax.grad(lambda a: jnp.tanh(1e-30 * jax.lax.fori_loop(0, 120, lambda _, x: a * x + 1.0, 0.0)) * 1e30)(a)


for name, clip in (("clip_by_global_norm", optax.clip_by_global_norm(1.0)), ("clip_by_block_rms", optax.clip_by_block_rms(1.0))):
    for eigenvalue in (1.2, 1.6):
        gradient = slope(jnp.float32(eigenvalue))
        clipped, _ = clip.update(gradient, optax.EmptyState())
        print(f"{name}, eigenvalue {eigenvalue}: gradient {gradient:.3g}, clipped at 1: {clipped:.3g}")
        assert jnp.isfinite(gradient)
        assert clipped == (1.0 if eigenvalue == 1.2 else 0.0), clipped
print("A gradient whose norm overflows float32 is clipped to zero.")
PY
