"""Settings in YAML files, read as plain values: nothing that a file names is imported, made or called.

What is a number differs between the versions of YAML, and a file is read by that of the program that wrote it:

* 1.1, as PyYAML has it, of Lightning and MLflow; Hydra's files are by OmegaConf, in such a way that PyYAML reads the
  same. `1e-3` and `nan` are texts, as they were in the program, `1:30` is 90, `010` is 8, `on` is true. A number is
  written as 0.001 or 1.0e-05.
* 1.2, of DVCLive (ruamel.yaml) and W&B. `1e-05` is a number, `010` is 10; `1:30`, `on`, `no` and `1_000` are texts.

Dates are texts. In files of 1.1, tags of Python objects are kept as texts, as in "torch.device(cpu)"; those of mappings
are left out, so that the values in an object are settings as those in a table are. Files of 1.2 have no such tags, and
one is an error.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from lrurun.errors import UsageError
from lrurun.trackers import documents

MOST_VALUES = 100_000
"""The most values of a file: references within it can make a few lines a tree without end."""
Version = Literal["1.1", "1.2"]


def table(path: Path, version: Version = "1.1") -> dict[str, Any]:
    """The mapping in a file, with texts as keys; empty of an empty file.

    Args:
        version: that of YAML in which the file was written.

    Raises:
        UsageError: it is not UTF-8, no YAML, no mapping, or too large.
        LrurunError: it cannot be read.
    """
    import yaml

    text = documents.text(path)
    try:
        found = yaml.load(text, _loader() if version == "1.1" else _core_loader())
        values = _plain(found, [MOST_VALUES])
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else "the end"
        raise UsageError(f"{path}, {line}: is not YAML: {error.problem or error.context}", documents.REPAIR) from None
    except (yaml.YAMLError, ValueError) as error:  # a control character; a number such as 0x_
        raise UsageError(f"{path}: is not YAML: {str(error).splitlines()[0]}", documents.REPAIR) from None
    except (RecursionError, OverflowError):
        raise UsageError(
            f"{path}: has more than {MOST_VALUES:,} values, or refers to itself", "write it without references"
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected a table of settings, found {type(values).__name__}", documents.REPAIR)
    return values


@cache
def _loader() -> Any:
    """A loader of YAML 1.1 that makes plain values only."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    # Copies: those of the class are shared with its base.
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in Loader.yaml_implicit_resolvers.items()
    }
    Loader.add_constructor(None, _tagged)
    Loader.add_constructor("tag:yaml.org,2002:binary", _tagged)
    return Loader


@cache
def _core_loader() -> Any:
    """A loader of the core schema of YAML 1.2."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    for tag, pattern, first in _CORE:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first))
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: _whole(loader.construct_scalar(node)))
    return Loader


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


def _tagged(loader: Any, node: Any) -> Any:
    """The value of a node whose tag is unknown, as is every tag of a Python object."""
    name = node.tag.rpartition(":")[2]
    if node.id == "mapping":
        return loader.construct_mapping(node, deep=True)
    if node.id == "scalar":
        return node.value or name
    values = loader.construct_sequence(node, deep=True)
    if "python/object" not in node.tag:  # a tuple
        return values
    if name.startswith("pathlib."):
        return str(PurePosixPath(*map(str, values)))
    return f"{name}({', '.join(map(str, values))})"


def _plain(value: Any, left: list[int]) -> Any:
    """A value with texts as keys, and lists in the place of tuples and sets; counts down what is left."""
    left[0] -= 1
    if left[0] < 0:
        raise OverflowError
    if isinstance(value, dict):
        return {str(key): _plain(entry, left) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, left) for entry in value]
    if isinstance(value, set):
        return sorted((_plain(entry, left) for entry in value), key=str)
    return value
