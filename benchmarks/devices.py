"""Memory of a training step, as XLA plans it, on each of several devices and with batches in parts.

    python benchmarks/devices.py [N]        on N parts of a CPU [4]
    python benchmarks/devices.py parts      with optim.accumulate, on one

Nothing is trained: steps are compiled, and the memory that they need beside their arguments (parameters, optimiser
state, data) is printed.
"""

from __future__ import annotations

import os
import sys

import jax
import numpy as np

from lrurun.config import planning
from lrurun.training.compiled import Compiled

SIZES = {"train.batch": 32, "model.width": 64, "model.depth": 2}
MODELS = {
    ("sCIFAR", "lru", "gamma-norm"): SIZES | {"model.state": 64},
    ("sCIFAR", "lru", "tanh-rnn"): SIZES | {"model.state": 64},
    ("ListOps", "lru", "small-phase"): SIZES | {"model.state": 64},
    ("Retrieval", "lru", "gamma-norm"): SIZES | {"model.state": 64, "train.batch": 16},
    ("sCIFAR", "ssm", "s4d"): SIZES,
}
EXAMPLES = 500
PARTS = (1, 2, 4, 16)


def mebibytes(task: str, ladder: str, rung: str, sets: dict[str, int], devices: int = 1) -> float:
    """What a training step of a rung needs on each device."""
    plan = planning.make(task, ladder=ladder, sets=sets | {"execution.devices": devices})
    [chosen] = planning.choose_rungs(plan, [rung])
    spec, batch = plan.task.spec(plan.options), chosen.config.train.batch
    compiled = Compiled(chosen.config, chosen.execution, spec)

    def array(dtype: type, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    shape = (EXAMPLES, 2) if spec.pair else (EXAMPLES,)
    features = (spec.features,) if spec.kind == "features" and spec.features > 1 else ()
    lengths = array(np.int32, *shape) if spec.kind == "tokens" else None
    split = (array(np.uint8, *shape, spec.length, *features), array(np.int32, EXAMPLES), lengths)
    index, rates = array(np.int32, 1, compiled.rows, batch), array(np.float32, 1, compiled.rows)
    scalars = (array(np.bool_), array(np.int32))
    state = jax.tree.map(lambda leaf: array(leaf.dtype, 1, *leaf.shape), compiled.vector_shapes)
    lowered = compiled.dispatch.lower(state, array(np.uint32, 1), index, rates, *scalars, split)
    return float(lowered.compile().memory_analysis().temp_size_in_bytes) / 2**20


def of_parts() -> None:
    """At the paper's scale, with a batch that has so many parts."""
    print("| optim.accumulate | memory |\n|---|---|")
    for count in PARTS:
        memory = mebibytes("sCIFAR", "lru", "gamma-norm", {"train.batch": 64, "optim.accumulate": count})
        print(f"| {count} | {memory:,.0f} MiB |", flush=True)


def on_devices(count: int) -> None:
    """On one device, and on each of so many."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    print(f"| task, rung | 1 device | {count} devices, each | ratio |\n|---|---|---|---|")
    for (task, ladder, rung), sets in MODELS.items():
        one, several = (mebibytes(task, ladder, rung, sets, n) for n in (1, count))
        print(f"| {task}, {rung} | {one:.0f} MiB | {several:.0f} MiB | {one / several:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["parts"]:
        of_parts()
    else:
        on_devices(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
