"""Making a record to publish: a folder or a zip file, which appears complete or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from msgspec import Struct

from lrurun import files
from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger import backups, published
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import FINISHED
from lrurun.report import exports, formats, pip_requirements
from lrurun.session.publication import crate, files_of_code, readme, toml_documents
from lrurun.version import VERSION

if TYPE_CHECKING:
    from lrurun.ledger.part import Part
    from lrurun.ledger.published import Names
    from lrurun.ledger.values import LadderInstance, Run
    from lrurun.paths import Places
    from lrurun.report.tables.loaded_instance import LoadedInstance
    from lrurun.session.publication.files_of_code import CopiedFiles, MissingFile

LEDGER, README, SUMS = backups.PUBLISHED, "README.md", "SHA256SUMS"
_INSTANCES = "instances"
_CODE = "code"
"""The folder of an instance with what was run: nothing that lrurun makes from the runs is in it."""
_ENDINGS = {format: ending for ending, format in formats.ENDINGS.items()}


class Choices(Struct, frozen=True, kw_only=True):
    """What the user chose for a record."""

    license: str | None = None
    authors: tuple[str, ...] = ()
    anonymous: bool = False


class Record(Struct, frozen=True, kw_only=True):
    """What a record has, for messages."""

    instances: int
    runs: int
    files: int
    bytes: int
    names: Names
    """Of people, machines and folders, in the ledger before they were replaced."""
    remaining: tuple[tuple[str, tuple[str, ...]], ...]
    """Files that have names that could not be replaced, and the names."""
    missing: tuple[MissingFile, ...]
    without_report: tuple[tuple[str, str], ...]
    """Instances without a report, and why."""


def write(ledger: Ledger, part: Part, places: Places, target: Path, choices: Choices) -> Record:
    """Makes the record of a part of a ledger: the folder `target`, or the zip file if its name ends in ".zip".

    Raises:
        LrurunError: `target` exists or cannot be written.
        NotFoundError: no run of the part is finished.
    """
    exports.check_new(target)
    if not any(run.state in FINISHED for run in ledger.each(ledger.run_ids(part=part))):
        raise NotFoundError(
            f"{ledger.path}: no run of {part.text or 'this ledger'} is finished, so there is nothing to publish",
            "lrurun status shows what remains",
        )
    is_zip = target.suffix.lower() == ".zip"
    try:
        with files.atomic(target.absolute()) as partial:
            folder = partial.with_name(f"{partial.name}.content") if is_zip else partial  # removed with it
            folder.mkdir()
            record = _write(ledger, part, places, folder, choices)
            if is_zip:
                _zip(folder, partial)
            return record
    except OSError as error:
        exports.check_new(target)  # another export was quicker
        raise LrurunError(f"{target}: {error.strerror or error}", "name another one, or make room") from None


def _write(ledger: Ledger, part: Part, places: Places, folder: Path, choices: Choices) -> Record:
    backups.backup(ledger, folder / LEDGER, part)
    with Ledger.read(folder / LEDGER) as copy:
        sizes = [checkpoint.bytes or 0 for checkpoint in copy.each_checkpoint(copy.run_ids(), "committed")]
    names = published.prepare(folder / LEDGER, anonymous=choices.anonymous)
    described: list[readme.Described] = []
    trainings: list[crate.Training] = []
    without: list[tuple[str, str]] = []
    with Ledger.read(folder / LEDGER) as copy:
        ids = copy.run_ids()
        exports.write(copy, ids, "csv", folder / "tables")
        instances = copy.ladders()
        sources = [paper for instance in instances if (paper := toml_documents.paper_of(copy, instance))]
        for instance in instances:
            made, why = _instance(copy, ledger, instance, places, folder)
            described.append(made)
            without += [(instance.short_name, why)] if why else []
            trainings.append(_training(copy, instance, made))
    date = time.strftime("%Y-%m-%d", time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))
    more = f" and {len(described) - 1} more" if described[1:] else ""
    title = f"Runs of {described[0].title}{more}" if described else "Runs"
    known = names.all if choices.anonymous else ()
    remaining: tuple[tuple[str, tuple[str, ...]], ...] = ()
    while True:  # the README lists the files that have names, of which it may become one
        (folder / README).write_text(
            readme.text(
                title=title,
                date=date,
                version=VERSION,
                license=choices.license,
                authors=choices.authors,
                instances=described,
                names=names,
                anonymous=choices.anonymous,
                remaining=[path for path, _ in remaining],
                checkpoints=(len(sizes), sum(sizes)),
            ),
            encoding="utf-8",
        )
        _write_crate(folder, title, date, choices, described, trainings, sources)
        found = tuple(_remaining(folder, known))
        if found == remaining:
            break
        remaining = found
    _write_sums(folder)
    paths = list(_paths(folder))
    return Record(
        instances=len(described),
        runs=len(ids),
        files=len(paths),
        bytes=sum((folder / path).stat().st_size for path in paths),
        names=names,
        remaining=remaining,
        missing=tuple(file for each in described for file in each.missing),
        without_report=tuple(without),
    )


# An instance


def _instance(
    copy: Ledger, ledger: Ledger, instance: LadderInstance, places: Places, folder: Path
) -> tuple[readme.Described, str]:
    """The folder of an instance, and why it has no report."""
    (folder / _INSTANCES).mkdir(exist_ok=True)
    used = [path.name for path in (folder / _INSTANCES).iterdir()]
    own = folder / _INSTANCES / files_of_code.unused(_plain(instance.short_name), used)
    own.mkdir()
    documents, code = _write_code(copy, ledger, instance, places, own / _CODE)
    runs = copy.runs(instance.key, superseded=True)
    requirements = _write_requirements(copy, runs, own)
    loaded, why = _loaded(copy, ledger, instance)
    has_report = has_methods = has_figure = False
    if loaded is not None:
        try:
            has_report = _write_reports(loaded, own)
            has_methods = _write_methods(loaded, own)
            has_figure = _write_figure(loaded, places, own)
        except LrurunError as error:
            why = error.message
    return readme.Described(
        name=instance.short_name,
        folder=f"{_INSTANCES}/{own.name}",
        title=_title(instance),
        is_study=instance.kind == "study",
        runs=len(runs),
        has_report=has_report,
        has_methods=has_methods,
        has_figure=has_figure,
        documents=tuple(f"{_CODE}/{name}" for name in documents),
        code=tuple(f"{_CODE}/{name}" for name in code.names.values()),
        requirements=tuple(requirements),
        missing=code.missing,
        left_out=len(copy.removed_from(instance.key)),
    ), why


def _write_code(
    copy: Ledger, ledger: Ledger, instance: LadderInstance, places: Places, folder: Path
) -> tuple[list[str], CopiedFiles]:
    """The folder with what was run: the files of the authors, by their names, and the documents beside them."""
    from lrurun.instances import documents

    # the copy may not have the paths of the files any more
    original = ledger.ladder(instance.key)
    code = files_of_code.copy(ledger, original, places.runs, folder)
    recorded = documents.find(ledger, original)
    load = [code.name_for(file) for file in recorded.ladder.load] if recorded else []
    names: list[str] = []
    for document, text in toml_documents.texts(copy, instance, load).items():
        used = [*code.names.values(), *names]
        name = files_of_code.unused(document, used)
        name = document if name == document else files_of_code.unused(f"recorded-{document}", used)
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        names.append(name)
    return names, code


def _title(instance: LadderInstance) -> str:
    """An instance in words, for example "ladder lru on npDigits, profile map, tuned"."""
    if instance.kind == "study":
        profile = f", profile {instance.profile}" if instance.profile else ""
        return f"study {instance.task.removeprefix('study:')}{profile}"
    untuned = "" if instance.kind == "imported" else "not tuned"  # nobody here knows how they were tuned
    return f"ladder {instance.name} on {', '.join(instance.identity.parts(untuned))}"


def _plain(name: str) -> str:
    """A name as the name of a folder."""
    return re.sub(r"[^\w.+-]+|^\.+", "_", name) or "instance"


def _loaded(copy: Ledger, ledger: Ledger, instance: LadderInstance) -> tuple[LoadedInstance | None, str]:
    """An instance of the copy, or why it cannot be loaded."""
    from lrurun.instances import documents
    from lrurun.report.tables import loaded_instance

    if instance.kind == "study":
        return None, "it is a study"
    try:
        original = ledger.ladder(instance.key)
        # by the paths that the copy may not have any more
        documents.load_code(ledger, original, documents.find(ledger, original), "task")
        return loaded_instance.of_instance(copy, instance), ""
    except LrurunError as error:
        return None, error.message


def _write_reports(loaded: LoadedInstance, folder: Path) -> bool:
    from lrurun.report import run_details
    from lrurun.report.formats.paper_style import PaperStyle

    report = loaded.report()
    details = run_details.collect(formats.content_of(report), loaded.ledger)
    for format in get_args(formats.Format):
        text = formats.render(report, format, details=details if format == "html" else None)
        (folder / f"report{_ENDINGS[format]}").write_text(text.rstrip("\n") + "\n", encoding="utf-8", newline="")
    table = formats.render(loaded.report(with_unbeaten=True), "latex", style=PaperStyle(plain=True))
    (folder / "table.tex").write_text(f"{table}\n", encoding="utf-8")
    return True


def _write_methods(loaded: LoadedInstance, folder: Path) -> bool:
    from lrurun.report.methods import paragraph

    try:
        methods = paragraph.of_instance(loaded)
    except NotFoundError:
        return False
    for format in paragraph.FORMATS:
        (folder / f"methods{_ENDINGS[format]}").write_text(f"{methods.render(format)}\n", encoding="utf-8")
    return True


def _write_figure(loaded: LoadedInstance, places: Places, folder: Path) -> bool:
    from lrurun.report.figures import figure_files
    from lrurun.session import plotting

    try:
        figure = plotting.of_instance("ladder", loaded, places, loaded.command)
    except NotFoundError:
        return False
    for suffix in (".pdf", ".svg"):
        (folder / f"ladder{suffix}").write_bytes(figure_files.render(figure, suffix, "page"))
    return True


def _write_requirements(copy: Ledger, runs: Sequence[Run], folder: Path) -> list[str]:
    """A file for each different environment of finished runs, that of most runs first."""
    attempts = copy.attempts_by_run([run.id for run in runs])
    by_text: dict[str, int] = {}
    texts: dict[str, str] = {}
    for run in sorted(runs, key=lambda run: run.id):
        if run.state not in FINISHED:
            continue
        with contextlib.suppress(LrurunError):  # of programs and imports none are recorded
            text = pip_requirements.text(run, attempts.get(run.id, []))
            packages = "\n".join(line for line in text.splitlines() if run.id not in line)
            by_text[packages] = by_text.get(packages, 0) + 1
            texts.setdefault(packages, text)
    names = []
    for number, (packages, _) in enumerate(sorted(by_text.items(), key=lambda item: -item[1]), 1):
        name = "requirements.txt" if number == 1 else f"requirements-{number}.txt"
        (folder / name).write_text(f"{texts[packages]}\n", encoding="utf-8")
        names.append(name)
    return names


def _training(copy: Ledger, instance: LadderInstance, made: readme.Described) -> crate.Training:
    runs = copy.runs(instance.key, superseded=True)
    every = [attempt for own in copy.attempts_by_run([run.id for run in runs]).values() for attempt in own]
    starts = [attempt.started_at for attempt in every]
    ends = [attempt.ended_at for attempt in every if attempt.ended_at is not None]
    versions = sorted({text.removeprefix("lrurun ") for run in runs for text in run.code if run.kind != "imported"})
    return crate.Training(
        name=instance.short_name,
        description=f"{made.title}: {made.runs} runs.",
        started=_time(min(starts)) if starts else None,
        ended=_time(max(ends)) if ends else None,
        inputs=tuple(f"{made.folder}/{name}" for name in (*made.documents, *made.code)),
        made_here=instance.kind != "imported",
        versions=tuple(versions),
    )


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


# Metadata and checksums


def _paths(folder: Path) -> Iterator[str]:
    """The paths of all files, in order."""
    yield from sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


_COMPRESSED = (".pdf", ".png", ".jpg", ".npz", ".gz", ".xz", ".zip")
"""How the names of files end in whose bytes no texts can be found."""


def _remaining(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The files that have some of the names, in their paths too, and which."""
    for path in _paths(folder) if names else ():
        if path == LEDGER:
            text = "\n".join(published.texts_of(folder / path))
        elif path.endswith(_COMPRESSED):  # short names are found there by chance
            text = ""
        else:
            text = (folder / path).read_bytes().decode("utf-8", "replace")
        if found := published.words_in(f"{path}\n{text}", names):
            yield path, tuple(found)


_DESCRIPTIONS: Mapping[str, str] = {
    LEDGER: "All runs with their configurations, results and curves",
    README: "What this is, how to check it and how to read it",
    SUMS: "SHA-256 checksums of all files",
    "runs.csv": "The runs, a line each",
    "metrics.csv": "The curves of the runs, a line for each point",
    "table.tex": "The comparison as a table for a paper",
}


def _description(path: str, documents: Collection[str]) -> str:
    folder, _, name = path.rpartition("/")
    if path in documents:
        return "The variants that were compared" if "ladder" in name else "How they were trained"
    if re.match(rf"{_INSTANCES}/[^/]+/{_CODE}\b", folder):
        return "A file that the runs used"
    for beginning, text in (("report.", "The comparison"), ("methods.", "The paragraph for a methods section")):
        if name.startswith(beginning):
            return text
    if name.startswith("requirements"):
        return "Versions of the packages that runs used"
    if name in ("ladder.pdf", "ladder.svg"):
        return "The comparison as a figure"
    return _DESCRIPTIONS[name]


def _write_crate(
    folder: Path,
    title: str,
    date: str,
    choices: Choices,
    described: Sequence[readme.Described],
    trainings: Sequence[crate.Training],
    sources: Sequence[str],
) -> None:
    documents = {f"{each.folder}/{name}" for each in described for name in each.documents}
    listed = [
        crate.CrateFile(
            path=path,
            bytes=(folder / path).stat().st_size,
            sha256=_sha256(folder / path),
            description=_description(path, documents),
        )
        for path in _paths(folder)
        if path != crate.METADATA
    ]
    size = sum(len(_sum_line("0" * 64, path).encode()) for path in (*(file.path for file in listed), crate.METADATA))
    listed.append(crate.CrateFile(path=SUMS, bytes=size, sha256=None, description=_DESCRIPTIONS[SUMS]))
    runs = sum(each.runs for each in described)
    text = crate.render(
        name=title,
        description=f"A ledger of {runs} runs with the comparisons that follow from them, as recorded by lrurun.",
        date=date,
        license=choices.license,
        authors=choices.authors,
        citations=sources,
        files=listed,
        trainings=trainings,
        version=VERSION,
        ledger=LEDGER,
    )
    (folder / crate.METADATA).write_text(text, encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_sums(folder: Path) -> None:
    lines = [_sum_line(_sha256(folder / path), path) for path in _paths(folder)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def _sum_line(sha256: str, path: str) -> str:
    """A line that `sha256sum -c` reads."""
    return f"{sha256}  {path}\n"


def _zip(folder: Path, target: Path) -> None:
    """The files of a folder as a zip file, the same bytes whenever it is made."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _paths(folder):
            entry = zipfile.ZipInfo(path)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with (folder / path).open("rb") as source, archive.open(entry, "w", force_zip64=True) as packed:
                while chunk := source.read(2**20):
                    packed.write(chunk)
