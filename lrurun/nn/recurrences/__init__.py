"""The classes of the recurrences, one file per family; their declarations are in `lrurun.config.recurrences`."""

from __future__ import annotations

from lrurun.config.recurrences import KINDS, RecurrenceSettings
from lrurun.nn.products import Precision
from lrurun.nn.recurrences.base import Params, Recurrence

__all__ = ["Params", "Recurrence", "build"]


def build(
    settings: RecurrenceSettings,
    *,
    width: int,
    state: int,
    bidirectional: bool = False,
    backend: str = "auto",
    precision: Precision = "tf32",
) -> Recurrence:
    """The recurrence that `settings`, a tagged table such as `LRUSettings`, describes.

    `width` is H, `state` N. Raises ValueError where the kind is not known, or the settings do not fit the sizes.
    """
    kind = str(settings.__struct_config__.tag)
    if kind not in KINDS:
        raise ValueError(f"recurrence kind must be one of {', '.join(KINDS)}, found {kind!r}")
    settings.fits(width=width, state=state, bidirectional=bidirectional)
    built: Recurrence = KINDS[kind].load()(
        settings, width=width, state=state, bidirectional=bidirectional, backend=backend, precision=precision
    )
    return built
