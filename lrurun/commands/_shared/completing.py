"""How the shell completes settings and their values, conditions, and lists of names. No jax, and no ledger."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from lrurun.errors import LrurunError

SPLIT = "_LRURUN_SPLIT_AT_EQUALS"
"""Set in the environment where the shell splits words at "=", and replaces only what follows it."""

_SAFE = re.compile(r"[\w./,=+@-]+", re.ASCII)
"""Names that the shell does not evaluate."""


class _Rest(str):
    """The rest of a word, which Typer would leave out because it does not begin as the word does."""

    def startswith(self, *_: Any) -> bool:
        return True


def rejoin_words() -> None:
    """Joins the words of a command line that bash has split at "="."""
    words = os.environ.get("COMP_WORDS", "")
    if os.environ.get("_LRURUN_COMPLETE") != "complete_bash" or "\n" not in words:
        return
    joined: list[str] = []
    at, current = 0, int(os.environ.get("COMP_CWORD", "0"))
    continued = False
    for number, word in enumerate(words.split("\n")):
        if joined and (word == "=" or continued) and number <= current:
            joined[-1] += word
        else:
            joined.append(word)
        continued = word == "=" and number <= current
        if number == current:
            at = len(joined) - 1
    if "=" in joined[at]:
        os.environ[SPLIT] = "1"
    os.environ |= {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(at)}


def settings(context: typer.Context, incomplete: str) -> list[str]:
    """`path=value` of `--set` and `path=value,value` of `--sweep`: paths with "=", then values that are known."""
    from lrurun.config.schema import known_paths

    path, equals, value = incomplete.partition("=")
    if not equals:
        paths = [known for known in known_paths() if known.startswith(path)]
        # a single candidate would end the word
        return _safe([f"{known}=" for known in paths] if len(paths) != 1 else _with_values(context, paths[0], ""))
    return _trimmed(incomplete, _with_values(context, path, value))


def names(incomplete: str) -> list[str]:
    """Names of columns, separated by commas."""
    from lrurun.ledger.where.names import Names

    return _listed(incomplete, Names())


def paths(incomplete: str) -> list[str]:
    """Paths of settings, separated by commas."""
    from lrurun.config.schema import known_paths

    return _listed(incomplete, known_paths())


def condition(incomplete: str) -> list[str]:
    """Names in a condition, and after an operator the values of those that have few."""
    from lrurun.ledger.where.names import Names

    # the shell replaces the whole argument, so the part before the name is repeated
    before, name = re.fullmatch(r"(.*?)([a-zA-Z][\w./-]*)?", incomplete, re.DOTALL).groups("")  # type: ignore[union-attr]
    compared = re.search(r"([a-zA-Z][\w./-]*)(?:=|!=)$", before)
    known: Iterable[str] = Names()
    if compared is not None:
        known = _compared(compared[1])
    return [before + candidate for candidate in known if candidate.startswith(name)]


def _compared(name: str) -> Sequence[str]:
    from lrurun import paths
    from lrurun.ledger.values import STATES

    if name == "state":
        return STATES
    if name == "stage":
        return ("train", "tune")
    if name in ("task", "ladder"):
        return list(paths.names("recipes" if name == "task" else "ablations"))
    return _values(name)


def _listed(incomplete: str, known: Iterable[str]) -> list[str]:
    """Names for the part after the last comma; not the names before it."""
    before, comma, name = incomplete.rpartition(",")
    earlier = before.split(",")
    return _safe(
        before + comma + candidate for candidate in known if candidate.startswith(name) and candidate not in earlier
    )


def _with_values(context: typer.Context, path: str, text: str) -> list[str]:
    before, comma, value = text.rpartition(",")
    earlier = before.split(",")
    known = _values(path) or _tuned(context, path)
    candidates = [candidate for candidate in known if candidate.startswith(value) and candidate not in earlier]
    return [f"{path}={before}{comma}{candidate}" for candidate in candidates] or ([] if text else [f"{path}="])


def _trimmed(incomplete: str, completions: Iterable[str]) -> list[str]:
    """The part of a completion after "=", where the shell replaces only that."""
    cut = incomplete.rindex("=") + 1 if SPLIT in os.environ else 0
    return [_Rest(completion[cut:]) for completion in _safe(completions) if completion[cut:]]


def _values(path: str) -> list[str]:
    """The values of a setting that has few."""
    from lrurun.config.optimizers import OPTIMIZERS
    from lrurun.config.recurrences import KINDS
    from lrurun.config.schema import KIND, OPTIMIZER, types_of

    if path in (KIND, OPTIMIZER):
        return list(KINDS if path == KIND else OPTIMIZERS)
    section, _, name = path.rpartition(".")
    for type_ in types_of(section):
        hint = get_type_hints(type_).get(name)
        if hint is bool:
            return ["true", "false"]
        if get_origin(hint) is Literal:
            return [str(value) for value in get_args(hint)]
    return []


def _tuned(context: typer.Context, path: str) -> list[str]:
    """The values that the recipe of the command tunes over; the ends of a range."""
    from lrurun.config import tuning_grid
    from lrurun.config.recipe import read_recipe

    with suppress(LrurunError):
        # a line that ends in an option without its value is not parsed: its arguments are still in args
        recipe = read_recipe(context.params.get("task") or next(iter(context.args), ""))
        tried = tuning_grid.common_grid(recipe, context.params.get("profile"))
        return [str(value) for value in tuning_grid.examples(tried[path][0])] if path in tried else []
    return []


def _safe(completions: Iterable[str]) -> list[str]:
    return [completion for completion in completions if _SAFE.fullmatch(completion)]
