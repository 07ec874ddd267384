"""The former place of the writer of arrays, now `lrurun.data.arrays`."""

from lrurun.data.arrays import Writer

__all__ = ["Writer"]
