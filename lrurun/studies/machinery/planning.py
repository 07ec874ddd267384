"""The cells of a study as runs of the ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import msgspec
from msgspec import Struct

from lrurun import decoding
from lrurun.config import names
from lrurun.config.runs import InstanceSpec, PlannedRun, pack
from lrurun.config.schema import CellConfig, Config, Execution
from lrurun.decoding import canonical
from lrurun.errors import UsageError, hint_for
from lrurun.studies import PREFIX, STUDY
from lrurun.studies.machinery.study import Settings, Study

MOST_CELLS = 100_000


class StudyPlan(Struct, frozen=True, kw_only=True):
    """The cells of a study in a profile, with changed settings."""

    study: Study[Any]
    profile: str
    changes: dict[str, Any]
    """The values of `--set`."""
    cells: tuple[Any, ...]
    """The settings of each point of the grid."""
    seeds: Sequence[int]

    @property
    def name(self) -> str:
        """The name of the ladder in the ledger."""
        return STUDY

    @property
    def task(self) -> str:
        return PREFIX + self.study.name

    @property
    def short_name(self) -> str:
        """A name for people to type, as in "study-phase-ci"."""
        return names.proposed(self.name_parts)

    @property
    def name_parts(self) -> names.NameParts:
        """The facts that distinguish the instance from others, of which its name is made."""
        return names.NameParts(files=(STUDY, self.study.name), options=(self.profile,), changes=self.changes)

    @property
    def spec(self) -> InstanceSpec:
        """The facts that distinguish this instance from others of the study and profile."""
        cells = json.dumps([self.study.version, [canonical(cell) for cell in self.cells]], sort_keys=True)
        return InstanceSpec(set=self.changes, digest=hashlib.sha256(cells.encode()).hexdigest()[:12])

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the cells, each once."""
        return tuple(dict.fromkeys(map(self.study.label, self.cells)))

    def runs(self, labels: Sequence[str] = ()) -> list[PlannedRun]:
        """The runs of the cells with these labels; of all cells without any."""
        rungs, chosen = {label: rung for rung, label in enumerate(self.labels)}, set(labels)
        return [
            _planned(self, cell, seed, pack(rungs[self.study.label(cell)], "train", min(number, 4999)))
            for number, (cell, seed) in enumerate(product(self.cells, self.seeds))
            if not chosen or self.study.label(cell) in chosen
        ]

    def choose(self, labels: Sequence[str]) -> tuple[str, ...]:
        """The labels, checked.

        Raises:
            UsageError: no cell has one of them.
        """
        existing = self.labels
        for label in labels:
            if label not in existing:
                raise UsageError(f"{self.study.name}: unknown cell {label!r}", hint_for(label, existing, "cells"))
        return tuple(labels) or existing


def make(study: Study[Any], profile: str, changes: Mapping[str, Any], seeds: Sequence[int] | None = None) -> StudyPlan:
    """The plan of a study.

    Args:
        changes: setting -> its value, or a list of values, which makes it an axis of the grid.
        seeds: None for the number in the profile; a study whose numbers do not depend on the seed has one.

    Raises:
        UsageError: an unknown profile or setting, or a value that is out of range.
    """
    if profile not in study.profiles:
        raise UsageError(
            f"{study.name}: unknown profile {profile!r}", hint_for(profile, study.profiles, "profiles of this study")
        )
    table = {**study.profiles[profile], **changes}
    axes = {name: value if isinstance(value, list) else [value] for name, value in table.items()}
    for name, values in axes.items():
        if not values:
            raise UsageError(f"--set {name}: the list is empty", f"as in --set {name}=VALUE")
    seeds = range(study.seeds.get(profile, 1)) if seeds is None or not study.seeded else seeds
    count = len(seeds)
    for values in axes.values():
        count *= len(values)
    if count > MOST_CELLS:
        raise UsageError(
            f"{study.name}: {count} cells, at most {MOST_CELLS} are possible", "use shorter lists or fewer seeds"
        )
    sources = dict.fromkeys(study.profiles[profile], f"profile {profile}") | {name: f"--set {name}" for name in changes}
    points = [
        decoding.convert(dict(zip(axes, point, strict=True)), study.settings, f"study {study.name}", sources)
        for point in product(*axes.values())
    ]
    cells = tuple(cell for cell in dict.fromkeys(points) if study.has(cell))
    if not cells:
        raise UsageError(f"{study.name}: these settings leave no cell", "use the profile's settings")
    return StudyPlan(
        study=study,
        profile=profile,
        changes=dict(changes),
        cells=cells,
        seeds=seeds,
    )


def cell_of(study: Study[Any], config: Config, where: str) -> Settings:
    """The settings of a cell from the configuration of its run.

    Raises:
        UsageError: they do not fit this version.
    """
    if not isinstance(config, CellConfig):
        raise UsageError(f"{where}: is no cell of a study", f"lrurun study {study.name} makes its cells")
    if config.version != study.version:
        raise UsageError(
            f"{where}: a cell of version {config.version} of the study {study.name}, this is {study.version}",
            f"run lrurun study {study.name}, which makes new cells",
        )
    cell: Settings = decoding.convert(config.cell, study.settings, where)
    return cell


def _planned(plan: StudyPlan, cell: Any, seed: int, position: int) -> PlannedRun:
    study = plan.study
    hashed = {"task": plan.task, "version": study.version, "cell": canonical(cell), "seed": seed}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    profile = study.profiles[plan.profile]
    return PlannedRun(
        fingerprint="sha256:" + hashlib.sha256(text.encode()).hexdigest(),
        kind=STUDY,
        task=plan.task,
        rung=study.label(cell),
        stage="train",
        seed=seed,
        steps=study.steps(cell),
        config=CellConfig(task=plan.task, version=study.version, cell=msgspec.to_builtins(cell), seed=seed),
        execution=Execution(),
        sources={
            f"cell.{name}": "--set"
            if name in plan.changes
            else f"profile {plan.profile}"
            if name in profile
            else "default"
            for name in cell.__struct_fields__
        },
        position=position,
    )
