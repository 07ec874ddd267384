"""The ladder and the recipe of an instance as TOML, from what the ledger recorded when they were run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lrurun.config.settings import toml_value
from lrurun.ledger.values import DOCUMENTS

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance

_OF_LADDER = ("name", "title", "source", "question", "rung", "claim", "grid", "speed", "recipes", "other_tasks", "load")


def texts(ledger: Ledger, instance: LadderInstance) -> dict[str, str]:
    """File name -> TOML of the documents of an instance; one file where ladder and recipe were one.

    Empty if no documents are recorded.
    """
    events = ledger.events(ladder_key=instance.key, of_runs=False, kind=DOCUMENTS)
    payload = events[-1].payload if events else None
    if not payload:
        return {}
    ladder, recipe = dict(payload["ladder"]), dict(payload["recipe"])
    paths = ladder.pop("path", ""), recipe.pop("path", "")
    ladder["load"] = [name.rpartition("/")[2] for name in ladder.get("load", [])]
    if not ladder["load"]:
        del ladder["load"]
    if paths[0] == paths[1]:
        own = {name: value for name, value in ladder.items() if name in _OF_LADDER and name not in recipe}
        # a file with both gives its ladder a name and a title by itself
        own = {name: value for name, value in own.items() if not (name == "title" and value == "ladder")}
        if own.get("name") == recipe.get("task"):
            del own["name"]
        own = {name: value for name, value in own.items() if value != ""}
        return {"recipe.toml": _text({**_first(recipe), **_first(own), **_rest(recipe), **_rest(own)})}
    return {"ladder.toml": _text(ladder), "recipe.toml": _text(recipe)}


def _first(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if not _is_section(value)}


def _rest(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if _is_section(value)}


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(part, dict) for part in value)
    )


def _text(table: Mapping[str, Any]) -> str:
    return "\n".join(_lines(table, "")).strip() + "\n"


def _lines(table: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The lines of a table: its values, then its tables, each under its heading."""
    for name, value in _first(table).items():
        if value is not None:
            yield f"{_key(name)} = {toml_value(value)}"
    for name, value in _rest(table).items():
        path = f"{prefix}{_key(name)}"
        for part in value if isinstance(value, list) else [value]:
            yield ""
            yield f"[[{path}]]" if isinstance(value, list) else f"[{path}]"
            yield from _lines(part, f"{path}.")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else toml_value(name)
