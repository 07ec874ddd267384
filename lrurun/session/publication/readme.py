"""The README of a record: what it is, how to check it, how to read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from lrurun.errors import plural

if TYPE_CHECKING:
    from lrurun.ledger.published import Names
    from lrurun.session.publication.files_of_code import MissingFile


class Described(Struct, frozen=True, kw_only=True):
    """An instance in a record."""

    name: str
    folder: str
    title: str
    is_study: bool
    runs: int
    has_report: bool
    has_methods: bool
    has_figure: bool
    documents: tuple[str, ...]
    code: tuple[str, ...]
    requirements: tuple[str, ...]
    missing: tuple[MissingFile, ...]
    left_out: int
    """Runs of it that the record does not have."""


def text(
    *,
    title: str,
    date: str,
    version: str,
    license: str | None,
    authors: Sequence[str],
    instances: Sequence[Described],
    names: Names,
    anonymous: bool,
    remaining: Sequence[str],
    checkpoints: tuple[int, int],
) -> str:
    """The text of README.md.

    Args:
        names: the people, machines and folders that the ledger named before names were removed.
        remaining: files that still have such names, because they could not be removed there.
        checkpoints: how many there were, and their bytes.
    """
    parts = [
        f"# {title}",
        f"The runs behind a comparison, as they were recorded. The record was made with lrurun {version} on {date}"
        f"{' by ' + ', '.join(authors) if authors else ''}.",
        _license(license),
        "## What is here",
        "\n".join(_contents(instances)),
        *_missing(instances),
        *_checkpoints(checkpoints),
        "## How to check it",
        _CHECK.format(instance=instances[0].name if instances else "NAME"),
        "## How to read it without lrurun",
        _READ,
        "## Names",
        _names(names, anonymous, remaining),
    ]
    return "\n\n".join(parts) + "\n"


def _license(license: str | None) -> str:
    if license is None:
        return "No license was chosen: ask the authors before you reuse this."
    return f"License: {license}."


def _contents(instances: Sequence[Described]) -> list[str]:
    lines = [
        "- `ledger.db`: every run with its configuration, seeds, curves, results, attempts and versions, in one file "
        "of SQLite.",
        "- `tables/runs.csv`, `tables/metrics.csv`: the same runs and their curves as text.",
        "- `SHA256SUMS`: the checksums of all files. `ro-crate-metadata.json`: a description for machines (RO-Crate).",
    ]
    for described in instances:
        left = f"; {plural(described.left_out, 'further run')} of it not" if described.left_out else ""
        lines.append(f"- `{described.folder}/`: {described.title} ({plural(described.runs, 'run')} here{left}).")
        what = []
        if described.has_report:
            what.append(
                "the comparison (`report.*`: text, Markdown, CSV, JSON, LaTeX, HTML; `table.tex`: a table for a paper)"
            )
        if described.has_methods:
            what.append("the paragraph for a methods section (`methods.*`)")
        if described.has_figure:
            what.append("a figure (`ladder.pdf`, `ladder.svg`)")
        if described.documents:
            what.append(f"what was run ({', '.join(f'`{name}`' for name in described.documents)})")
        if described.code:
            what.append(f"the code of its authors ({', '.join(f'`{name}`' for name in described.code)})")
        if described.requirements:
            what.append(f"package versions ({', '.join(f'`{name}`' for name in described.requirements)})")
        lines += [f"  It has {'; '.join(what)}."] if what else []
        if described.is_study:
            lines.append("  A study of theory, whose settings come with lrurun: its report is made from the ledger.")
            continue
        if not described.documents:
            lines.append("  The documents that say what was run are not recorded.")
        if not described.has_report:
            lines.append("  Its comparison could not be made when this was written; the runs are in the ledger.")
        if not described.requirements:
            lines.append("  The packages that its runs used are not recorded.")
    return lines


def _missing(instances: Sequence[Described]) -> list[str]:
    lines = [f"- {described.name}: {file.name} {file.why}" for described in instances for file in described.missing]
    if not lines:
        return []
    return ["## What is missing", "Files that runs used and that were not found as they were:", "\n".join(lines)]


def _checkpoints(checkpoints: tuple[int, int]) -> list[str]:
    count, size = checkpoints
    if not count:
        return []
    return [
        f"Trained models are not here ({plural(count, 'checkpoint')} with {size / 1e6:,.1f} MB where this was made): "
        "each can be trained again, with the same numbers on the same kind of device."
    ]


_CHECK = """\
All files are as they were written:

    sha256sum -c SHA256SUMS

The comparison follows from the runs (`pip install lrurun` first):

    lrurun ledger merge . --ledger check.db
    lrurun report --instance {instance} --details --ledger check.db

A run gives the same numbers again (RUN is an id, as in `tables/runs.csv`; this trains it):

    lrurun verify RUN --ledger check.db"""

_READ = """\
`ledger.db` is a database of SQLite, which most languages read. The views `runs` and `attempts` have names and texts:

    sqlite3 ledger.db "SELECT id, task, seed, state, result FROM runs"

`tables/runs.csv` has a line for each run, `tables/metrics.csv` one for each point of each curve."""


def _names(names: Names, anonymous: bool, remaining: Sequence[str]) -> str:
    if not anonymous:
        if not names:
            return "The record names no people, machines or folders beyond what its documents say."
        what = [
            plural(len(found), noun)
            for found, noun in ((names.users, "user"), (names.hosts, "machine"), (names.folders, "folder"))
            if found
        ]
        return (
            f"The ledger names {' and '.join(filter(None, [', '.join(what[:-1]), what[-1]]))} of those who made it. A "
            "record for double-blind review is made with the option --anonymous."
        )
    text = "Names of people, machines and folders were replaced. Versions and commits of lrurun were kept."
    if not remaining:
        return text
    lines = [f"- `{path}`" for path in remaining]
    why = "because runs and instances are identified by it, or because it is in files of the authors"
    return f"{text} What was not replaced, {why}, is still in:\n\n" + "\n".join(lines)
