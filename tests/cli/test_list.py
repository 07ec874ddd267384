"""What `lrurun list` says about a study."""

from __future__ import annotations

import re

import msgspec

from lrurun import studies
from tests.harness.machine import Machine


def test_settings_are_listed_by_profile(machine: Machine) -> None:
    study = studies.get("memory")
    listed = machine.json("list", "studies", "zucchet-fig1a")
    assert listed["study"] == study.name
    found = {one["name"]: one["values"] for one in listed["settings"]}
    assert list(found) == list(study.settings.__struct_fields__)
    defaults = msgspec.structs.asdict(study.settings())
    for profile, table in study.profiles.items():
        assert {name: values[profile] for name, values in found.items()} == defaults | dict(table)
    text = machine.run("list", "studies", "bridge").stdout
    assert re.search(r"^nu +0.99$", text, re.MULTILINE), "the same in every profile"
    assert re.search(r"^updates +ci: 50; laptop: 1500; paper: 10000$", text, re.MULTILINE)
    assert machine.run("list", "tasks", "memory", code=2).stderr.startswith("error: list tasks: takes no name, found")
    assert "did you mean 'memory'" in machine.run("list", "studies", "memry", code=2).stderr
