"""Recipes and ladders: TOML files become frozen documents. No jax here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every document table."""


class Published(_Document, frozen=True):
    """A published score of a rung on a task."""

    source: str
    """Paper and table."""
    value: Annotated[float, Meta(ge=0, le=1)] | None = None
    """A fraction (0.699 for 69.9 %); None where the paper says that the model stayed at chance."""
    stderr: Annotated[float, Meta(ge=0, le=1)] | None = None
    note: str = ""


class Rung(_Document, frozen=True):
    """One named change to the rung before it."""

    name: Name
    title: str
    """What the rung is, in the words of a table."""
    why: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    """Dotted path -> value: what the ladder itself sets."""
    tunes: tuple[str, ...] = ()
    """Dotted paths whose values come from the recipe's `[rung.<name>]`."""
    published: dict[str, tuple[Published, ...]] = field(default_factory=dict)
    """Task -> published rows."""


class Claim(_Document, frozen=True):
    """A sentence of a paper as a planned comparison between two rungs."""

    text: str
    source: str
    rung: Name
    """The rung that is claimed to be better, or as good."""
    than: Name
    kind: Literal["better", "equal"] = "better"
    margin: Annotated[float, Meta(gt=0, le=1)] | None = None
    """For "equal": the difference, as a fraction, within which two scores count as equal."""
    tasks: tuple[str, ...] = ()
    """Tasks on which the paper makes it; elsewhere it is judged as a stand-in, and says so."""


class Ladder(_Document, frozen=True):
    """An ordered list of rungs."""

    name: Name
    title: str
    source: str
    question: str = ""
    rungs: tuple[Rung, ...] = field(name="rung", default=())
    claims: tuple[Claim, ...] = field(name="claim", default=())
    path: str = ""
