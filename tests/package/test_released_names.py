"""Names that users store or write are there for good, from release 1.0 on: JSON, TOML, the ledger, exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lrurun import errors
from lrurun.config.ladder import Ladder
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.recipe import Recipe
from lrurun.config.schema import DEFAULT_OPTIMIZER, KINDS, OPTIMIZER, Execution, RunConfig, own_settings
from lrurun.ledger.database.schema import metadata
from tests.docs.generated import Paths, documents, json_fields_of
from tests.harness.machine import Machine

RELEASED = Path(__file__).with_name("released-names.txt")


def test_no_released_name_is_gone(machine: Machine, request: pytest.FixtureRequest) -> None:
    """New ones are added to the file by `pytest --update-golden`; it takes none away."""
    released, here = set(RELEASED.read_text().splitlines()), set(names(machine))
    assert sorted(released - here) == [], "they are part of a release, and stay"
    if request.config.getoption("--update-golden"):
        RELEASED.write_text("\n".join(sorted(here)) + "\n")
        released = here
    assert sorted(here - released) == [], f"new names, for good: pytest --update-golden writes them to {RELEASED}"


def names(machine: Machine) -> Iterator[str]:
    for command, document in documents().items():
        yield from fields(f"json: {command}: ", document)
    yield from fields("recipe: ", Recipe)
    yield from fields("ladder: ", Ladder)
    yield from fields("run: ", RunConfig)
    yield from fields("run: execution.", Execution)
    for kind, declared in KINDS.items():
        yield from fields(f"run: model.recurrence, {kind}: ", declared.settings)
    for name in OPTIMIZERS:
        yield from (f"run: optim, {name}: {setting}" for setting in own_settings(OPTIMIZER, name))
    yield from fields("run: optim.", OPTIMIZERS[DEFAULT_OPTIMIZER].settings)
    yield from (f"table: {column.table.name}.{column.name}" for one in metadata.sorted_tables for column in one.c)
    machine.run("ledger", "migrate")
    for view in machine.json("query", "--views")["views"]:
        yield from (f"view: {view['name']}.{column['name']}" for column in view["columns"])
    yield from (
        f"exit code: {name} {found.exit_code}"
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.LrurunError)
    )


def fields(prefix: str, struct: type, paths: Paths = (), above: tuple[type, ...] = ()) -> Iterator[str]:
    """The fields of a struct, and of the structs in it."""
    for field, inner in json_fields_of(struct, paths).items():
        name = f"{prefix}{field}"
        yield name
        if inner is not None and (inner[1] or inner[0] not in (struct, *above)):
            yield from fields(f"{name}.", *inner, (struct, *above))
