"""The garbage collector of a worker process."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Packages are imported within it without searches for garbage: they make 300,000 objects, and nearly all stay.

    Later searches leave out all objects that live at its end, which are never freed: it belongs around imports alone.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
