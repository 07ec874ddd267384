"""JSON and YAML files in the folders of runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from lrurun.errors import LrurunError, UsageError

_AGAIN = "if its run still writes it, import again later; else write it whole, or move the folder of the run away"


def text(path: Path) -> str:
    """The text of a file, without a mark of its byte order.

    Raises:
        UsageError: it is not UTF-8.
        LrurunError: it cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})", _AGAIN) from None
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", "check the path and its permissions") from None


def json_table(path: Path) -> dict[str, Any]:
    """The table of a JSON file, in which NaN and infinities may be bare words.

    Raises:
        UsageError: it is not UTF-8, not JSON, or no table.
        LrurunError: it cannot be read.
    """
    content = text(path)
    try:
        table = json.loads(content)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{path}: not valid JSON: {error.msg} at {where}", _AGAIN) from None
    except (RecursionError, ValueError):
        # values nested too deeply, or with more digits than Python reads
        raise UsageError(f"{path}: not JSON that can be read: nested too deeply, or a number is too long") from None
    return _table(table, path)


def yaml_table(path: Path) -> dict[str, Any]:
    """The table of a YAML file of version 1.2, as ruamel.yaml writes it; an empty file is an empty table.

    PyYAML reads version 1.1, in which `1e-05` is a text, `no` is false and `1:30` is 90.

    Raises:
        UsageError: it is not UTF-8, not YAML, or no table.
        LrurunError: it cannot be read.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """The core schema of YAML 1.2."""

        yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    for tag, pattern, first in _CORE:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first))
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: _whole(loader.construct_scalar(node)))
    try:
        table = yaml.load(text(path), Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UsageError(f"{path}: not valid YAML: {error.problem or error.context}{where}", _AGAIN) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{path}: not valid YAML: {str(error).splitlines()[0]}", _AGAIN) from None
    return _table({} if table is None else table, path)


_CORE = (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
)
"""Type, how its values are written, and with which characters they begin; the first that fits counts."""


def _whole(digits: str) -> int:
    """The whole number that YAML 1.2 writes so: `010` is 10."""
    return int(digits, {"0o": 8, "0x": 16}.get(digits[:2], 10))


def _table(value: Any, path: Path) -> dict[str, Any]:
    """The value of a file as a table. Raises UsageError if it is none."""
    if not isinstance(value, dict):
        raise UsageError(f"{path}: expected a table, found {type(value).__name__}", "name another file or folder")
    return {str(key): inner for key, inner in value.items()}
