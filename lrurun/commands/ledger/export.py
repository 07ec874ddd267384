"""`lrurun ledger export`: a ledger as text, or runs as files of other programs."""

from __future__ import annotations

import contextlib
import csv
import json as jsonlib
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, get_args

import typer

from lrurun import console, files
from lrurun.commands._shared.options import OnlyInstances, Where, choice
from lrurun.commands._shared.rules import examples, excludes, exclusive, needs
from lrurun.errors import LrurunError, NotFoundError, UsageError, plural
from lrurun.report.formats import ExportFormat
from lrurun.session import opening, parts

if TYPE_CHECKING:
    from lrurun.paths import Places

TableFormat = Literal["jsonl", "csv"]
"""Formats of the whole ledger."""
AnyFormat = Literal[TableFormat, "parquet", "tensorboard", "mlflow"]
"""What `--format` takes: also the formats that only runs have."""
Target = Literal[ExportFormat, "publication"]
"""What `--to` takes."""


@examples(
    "lrurun ledger export --to parquet tables --where task=npDigits",
    "lrurun ledger export --to publication record.zip --license CC-BY-4.0 --author 'Ada Lovelace'",
)
@needs("dest", "to", "format")
@exclusive("dest", "out")
@excludes("to", "format", hint="--format csv is the whole ledger, --to csv the runs; leave one of them out")
def export(
    context: typer.Context,
    dest: Annotated[
        Optional[Path], typer.Argument(metavar="[DEST]", help="The same as --out.", show_default=False)
    ] = None,
    format: Annotated[
        AnyFormat,
        typer.Option(
            "--format",
            help="The whole ledger as jsonl or csv; the others as with --to.",
            **choice("--format", get_args(AnyFormat), also={"json": "jsonl"}),
        ),
    ] = "jsonl",
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="PATH", help="A new file; a new folder, unless it is jsonl.")
    ] = None,
    to: Annotated[
        Optional[Target],
        typer.Option(
            "--to",
            help="Runs as files of other programs; publication: all that belongs beside a paper, a folder or NAME.zip.",
            **choice(
                "--to",
                get_args(Target),
                hints=dict.fromkeys(("json", "jsonl"), "the whole ledger: --format jsonl"),
            ),
        ),
    ] = None,
    where: Where = None,
    instance: OnlyInstances = None,
    license: Annotated[
        Optional[str],
        typer.Option(
            "--license", metavar="L", help="For publication: an SPDX name such as CC-BY-4.0, an address or a text."
        ),
    ] = None,
    author: Annotated[
        Optional[list[str]],
        typer.Option(
            "--author", metavar="NAME", help="For publication: 'Name' or 'Name (ORCID)'. Repeatable, in their order."
        ),
    ] = None,
    anonymous: Annotated[
        bool,
        typer.Option("--anonymous", help="For publication: without names of people, machines and folders, for review."),
    ] = False,
) -> int:
    """Write the ledger or a part of it as text, or runs for other programs.

    With --to, runs go to a new folder: tables (parquet, csv), TensorBoard event files, or an MLflow database. --to
    publication makes what belongs beside a paper: the ledger, what was run, reports in all formats, checksums, a README
    and RO-Crate metadata.
    """
    places: Places = context.obj.places
    target = out if dest is None else dest
    of_runs = to or (None if format == "jsonl" or format == "csv" else format)
    if of_runs != "publication":
        for option, value in (("license", license), ("author", author), ("anonymous", anonymous)):
            if value:
                raise UsageError(f"--{option}: belongs to --to publication", "add --to publication, or leave it out")
    if of_runs is not None:
        if target is None:
            option = "--format" if to is None else "--to"
            raise UsageError(
                f"{option} {of_runs}: writes a folder, and needs its name", f"add it: {option} {of_runs} DEST"
            )
        if of_runs == "publication":
            return _publish(places, target, instance or (), where, license, author or [], anonymous=anonymous)
        return _write_runs(places, of_runs, target, instance or (), where)
    return _write_tables(places, format, target, instance or (), where)


def _write_runs(places: Places, to: ExportFormat, dest: Path, instances: Sequence[str], where: str | None) -> int:
    """The runs of a part, as a new folder."""
    from lrurun.ledger import backups
    from lrurun.report import exports

    exports.check_new(dest)
    with opening.existing(places) as ledger:
        part = parts.required(ledger, instances, where)
        ids = ledger.run_ids(part=part)
        if not ids:
            raise NotFoundError(f"there are no runs in {places.ledger}", "lrurun runs lists the runs")
        # The places of runs in other instances are no part of the files.
        whole = contextlib.nullcontext((ledger, None))
        with backups.of_part(ledger, part) if part.instances else whole as (source, _):
            departures = exports.write(source, ids, to, dest)
    for sentence in departures:
        console.warn(sentence)
    console.say(f"wrote {dest}: {plural(len(ids), 'run')}{_next(to, dest)}")
    return 0


def _publish(
    places: Places,
    dest: Path,
    instances: Sequence[str],
    where: str | None,
    license: str | None,
    authors: Sequence[str],
    *,
    anonymous: bool,
) -> int:
    """A record to publish, of all runs or of those of a part."""
    from lrurun.report import exports
    from lrurun.session.publication import publishing

    exports.check_new(dest)
    for author in authors:
        _check_author(author, anonymous=anonymous)
    chosen = publishing.Choices(license=license, authors=tuple(authors), anonymous=anonymous)
    with opening.existing(places) as ledger:
        part = parts.required(ledger, instances, where)
        record = publishing.write(ledger, part, places, dest, chosen)
    for file in record.missing:
        console.warn(f"not in {dest}: {file.name}: {file.why}")
    for name, why in record.without_report:
        console.warn(f"{name}: its report is not in the record, because {why}")
    if license is None:
        console.say("no license is stated: name one with --license, as in CC-BY-4.0")
    if record.names and not anonymous:
        what = ", ".join(record.names.all[:5]) + (", ..." if record.names.all[5:] else "")
        console.say(f"it names people, machines or folders ({what}); --anonymous replaces them")
    for path, names in record.remaining:
        console.warn(f"still named in {path}: {', '.join(names)}")
    if record.remaining:
        console.say(
            "these are files of programs, or what runs are identified by, which are published as they are: look "
            "whether it is a name there; if so, leave the instance out, or publish it after the review"
        )
    size = f"{record.bytes / 1e6:,.1f} MB"
    console.say(
        f"wrote {dest}: {plural(record.runs, 'run')} of {plural(record.instances, 'instance')}, "
        f"{plural(record.files, 'file')} with {size}; README.md says how to check and read it"
    )
    return 0


def _check_author(author: str, *, anonymous: bool) -> None:
    from lrurun.session.publication import crate

    if anonymous:
        raise UsageError("--author and --anonymous exclude each other", "leave one of them out")
    if not author.strip():
        raise UsageError("--author: expected a name, found none", "as in --author 'Ada Lovelace'")
    if re.search(r"\d{4}-\d{4}", author) and crate.orcid(author) is None:
        raise UsageError(
            f"--author {author!r}: expected an ORCID of 16 digits in parentheses",
            "as in --author 'Ada Lovelace (0000-0002-1825-0097)'",
        )


def _next(to: str, dest: Path) -> str:
    """How to look at it."""
    commands = {
        "tensorboard": f"tensorboard --logdir {shlex.quote(str(dest))}",
        "mlflow": "mlflow server --backend-store-uri " + shlex.quote(f"sqlite:///{dest.absolute() / 'mlflow.db'}"),
    }
    return f"; view it with: {commands[to]}" if to in commands else ""


def _write_tables(places: Places, format: str, out: Path | None, instances: Sequence[str], where: str | None) -> int:
    """Every table of the ledger, or of a part of it."""
    from lrurun.ledger import backups, exporting
    from lrurun.report.formats import as_csv

    if format == "csv" and out is None:
        raise UsageError("ledger export --format csv: writes a folder, and needs its name", "add --out FOLDER")
    with (
        opening.existing(places) as ledger,
        backups.of_part(ledger, parts.required(ledger, instances, where)) as (of_part, copied),
        contextlib.closing(exporting.export(of_part)) as tables,
    ):
        if format == "jsonl":
            _write_lines(tables, out)
        else:
            assert out is not None
            with _whole(out) as partial:
                partial.mkdir()
                for table, columns, rows in tables:
                    with (partial / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
                        writer = csv.writer(file)
                        writer.writerow(columns)
                        writer.writerows([as_csv.cell(cell) for cell in row] for row in rows)
    if out is not None:
        console.say(f"wrote {out}{f': {copied.sentence}' if copied else ''}")
    return 0


def _write_lines(tables: Iterator[tuple[str, list[str], Iterator[tuple[Any, ...]]]], out: Path | None) -> None:
    """Each row as a line of JSON, on stdout or in a new file."""
    lines = (
        jsonlib.dumps({"table": table} | dict(zip(columns, map(_exported, columns, row), strict=True)))
        for table, columns, rows in tables
        for row in rows
    )
    if out is None:
        for line in lines:
            console.write(line)
        return
    with _whole(out) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def _exported(column: str, value: Any) -> Any:
    """A cell for JSON: packed tables as tables, infinities and NaN as text that Python's `float` reads."""
    from lrurun.ledger import exporting

    if column in exporting.PACKED and isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):  # what is not JSON stays text
            return jsonlib.loads(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A new file or folder, which gets its name when it is complete."""
    if out.exists():
        raise LrurunError(f"{out}: exists already, and is not overwritten", "name a new one")
    try:
        with files.atomic(out.absolute()) as partial:
            yield partial
    except OSError as error:
        raise LrurunError(f"{out}: {error.strerror}", "choose another --out") from None
