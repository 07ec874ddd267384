"""The ladder and the recipe of an instance as TOML, from what the ledger recorded when they were run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lrurun.config.settings import toml_value
from lrurun.ledger.values import DOCUMENTS

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance

_OF_LADDER = ("name", "title", "source", "question", "rung", "claim", "grid", "speed", "recipes", "other_tasks", "load")


def texts(ledger: Ledger, instance: LadderInstance, load: Sequence[str]) -> dict[str, str]:
    """File name -> TOML of the documents of an instance; one file where ladder and recipe were one.

    Empty if no documents are recorded.

    Args:
        load: the files of plug-ins that the ladder loads, by their names beside it.
    """
    payload = _recorded(ledger, instance)
    if not payload:
        return {}
    ladder, recipe = dict(payload["ladder"]), dict(payload["recipe"])
    paths = ladder.pop("path", ""), recipe.pop("path", "")
    ladder.pop("load", None)
    ladder |= {"load": list(load)} if load else {}
    if paths[0] == paths[1]:
        own = {name: value for name, value in ladder.items() if name in _OF_LADDER and name not in recipe}
        # a file with both gives its ladder a name and a title by itself
        own = {name: value for name, value in own.items() if not (name == "title" and value == "ladder")}
        if own.get("name") == recipe.get("task"):
            del own["name"]
        own = {name: value for name, value in own.items() if value != ""}
        return {"recipe.toml": _text({**_first(recipe), **_first(own), **_rest(recipe), **_rest(own)})}
    return {"ladder.toml": _text(ladder), "recipe.toml": _text(recipe)}


def paper_of(ledger: Ledger, instance: LadderInstance) -> str:
    """What the ladder of an instance names as its source; empty if it names none."""
    source = _recorded(ledger, instance).get("ladder", {}).get("source")
    return source.strip() if isinstance(source, str) else ""


def _recorded(ledger: Ledger, instance: LadderInstance) -> dict[str, Any]:
    events = ledger.events(ladder_key=instance.key, of_runs=False, kind=DOCUMENTS)
    return (events[-1].payload if events else None) or {}


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
            yield f"{_key(name)} = {_value(value)}"
    for name, value in _rest(table).items():
        path = f"{prefix}{_key(name)}"
        for part in value if isinstance(value, list) else [value]:
            yield ""
            yield f"[[{path}]]" if isinstance(value, list) else f"[{path}]"
            yield from _lines(part, f"{path}.")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _value(name)


def _value(value: Any) -> str:
    """A value as TOML has it, with every character: settings may have texts of several lines."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(name)} = {_value(part)}' for name, part in value.items())} }}"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return re.sub(r"[\ud800-\udfff]", "\ufffd", text)  # of undecodable file names, which TOML cannot have
    return toml_value(value)
