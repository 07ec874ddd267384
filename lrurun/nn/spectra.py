"""Eigenvalues of the recurrences of a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from lrurun.nn.recurrences import Recurrence

Spectra = tuple[np.ndarray, ...]
"""Eigenvalues, complex128, one array per layer, first layer first."""


def eigenvalues(recurrence: Recurrence, params: dict[str, Any]) -> Spectra | None:
    """The eigenvalues of every layer's map from state to state, NaN where parameters are not finite.

    Args:
        params: parameters of the network, as `Model.init` returns them; only the recurrences' are read.

    Returns:
        None if this kind of recurrence does not define them.
    """
    blocks = params["blocks"]
    layers = [recurrence.spectrum(blocks[number]["recurrence"]) for number in sorted(blocks, key=int)]
    spectra = [np.asarray(layer, np.complex128) for layer in layers if layer is not None]
    return tuple(spectra) if len(spectra) == len(layers) else None
