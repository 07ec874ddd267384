"""How wide a table or a figure is made for a paper."""

from typing import Literal

Width = Literal["column", "page"]
"""One column of a paper in two columns, or both and the whole page."""
