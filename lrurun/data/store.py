"""Prepared data on disk: `.npy` arrays beside a manifest, written completely or not at all, verified when loaded."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, structs

from lrurun import decoding, files, plugins
from lrurun.data import array_checks, arrays, download, obtaining, published
from lrurun.data.arrays import Writer, sha256
from lrurun.data.copies import reading
from lrurun.data.metric import MAJORITY
from lrurun.data.task import SPLITS, Data, Options, Progress, Published, Reduction, Source, Spec, Split, Task
from lrurun.decoding import canonical
from lrurun.errors import LrurunError
from lrurun.version import VERSION

PARTS = ("inputs", "labels", "lengths")

_REMAKE = "remove the folder, and run the command again: it prepares the data again"
_IMPORT = "remove the folder, and import the same arrays again: lrurun data import"
_SPACE = "check space and permissions, or choose another folder with --data-dir"
_MANIFEST_LIMIT = 64 << 20
"""Bytes of a manifest: nearly all of it is the vocabulary, of which a million tokens would be about 16 MB."""

_Name = Annotated[str, Meta(max_length=1000)]
_Text = Annotated[str, Meta(max_length=10_000)]
"""For people; the longest path has 4,096 bytes."""
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Counts(msgspec.Struct):
    train: _Count
    validation: _Count
    test: _Count


class _Manifest(msgspec.Struct):
    """The fields of a manifest. Empty ones may be omitted; those that later versions add are ignored."""

    task: _Name
    version: _Name
    source: _Text
    counts: _Counts
    sha256: dict[
        Annotated[str, Meta(pattern=r"^(train|validation|test|test@[A-Za-z0-9_.]+)-(inputs|labels|lengths)\Z")],
        Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")],
    ]
    code: _Name = ""
    options: dict[str, Any] = {}
    settings: dict[_Name, _Count] = {}
    kind: Literal["embedded", "folder", "download", "generated", "imported"] = "embedded"
    published: Published | None = None
    generator: dict[str, Any] = {}
    vocabulary: list[_Name] = []
    baselines: dict[_Name, Annotated[float, Meta(ge=-1e9, le=1e9)]] = {}
    notes: list[_Text] = []
    lrurun: _Name = ""


def no_progress(what: str, done: int, total: int | None) -> None:
    """A `Progress` that shows nothing."""


def manifest(task: Task, options: Options, where: Path) -> dict[str, Any] | None:
    """The manifest in the folder `where`, or None if nothing is prepared there.

    Raises:
        LrurunError: the folder does not hold this version of the task's data with these options.
    """
    table = _read(where / "manifest.json")
    if table is None:
        return None
    if (table["task"], table["version"]) != (task.name, task.version):
        found = f"{table['task']} version {table['version']}"
        raise LrurunError(
            f"{where}: expected {task.name} version {task.version}, found {found}",
            task.restore or (obtaining.again(task, where) if table["task"] == task.name else _REMAKE),
        )
    if bool(table.get("code")) != bool(task.code):
        ours, theirs = f"lrurun's own task {task.name}", f"the task {task.name} of a plug-in"
        made, now = (theirs, ours) if table.get("code") else (ours, theirs)
        raise LrurunError(f"{where}: has the data of {made}, expected those of {now}", "rename your task")
    if edited := obtaining.edit(task, table, where):
        table["notes"] = [*table.get("notes", ()), edited]
    if table.get("options", {}) != canonical(options):
        raise LrurunError(
            f"{where}: expected data made with {_settings(canonical(options))}, "
            f"found {_settings(table.get('options', {}))}",
            task.restore or "choose another folder with --data-dir, or remove this one and run the command again",
        )
    return published.complete(table, task)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with reading.open_regular(path) as file:
            content = reading.read(file, _MANIFEST_LIMIT, str(path))
        msgspec.json.decode(content, type=_Manifest)
        table: dict[str, Any] = msgspec.json.decode(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", "check the data folder and its permissions") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise LrurunError(f"{path}: not a manifest: {error}", _REMAKE) from None
    return table


def prepare(
    task: Task,
    options: Options,
    where: Path,
    *,
    from_path: Path | None = None,
    force: bool = False,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Prepares the data in the folder `where` unless they are there, one process at a time; returns the manifest.

    Args:
        from_path: a copy of the data; by default they are downloaded, or generated if that fails or is not possible.
        force: prepare them again if they are there; the previous ones are kept until that has succeeded.

    Raises:
        LrurunError: no source is available, it is damaged, or the data cannot be written.
    """
    existing = None if force else manifest(task, options, where)
    if existing:
        return existing
    new = [folder for folder in where.parents if not folder.exists()]
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        waiting = f"waiting for another process that prepares {where.name}"
        with files.locked(where.with_name(f".{where.name}.lock"), lambda: progress(waiting, 0, None)):
            existing = None if force else manifest(task, options, where)
            if existing:
                return existing
            if where.exists() and not (force and (where / "manifest.json").is_file()):
                raise LrurunError(
                    f"{where}: this folder exists, but has no manifest",
                    "move it away, or choose another folder with --data-dir",
                )
            _make(task, options, where, _source(task, options, where, from_path, progress), progress)
    except OSError as error:
        if (fault := plugins.fault(error)) is not None:
            raise fault from error
        raise LrurunError(f"{error.filename or where}: {error.strerror}", _SPACE) from None
    finally:
        with contextlib.suppress(OSError):
            for folder in new:
                folder.rmdir()  # succeeds only while it is empty
    made = manifest(task, options, where)
    assert made is not None
    return made


def _make(task: Task, options: Options, where: Path, source: Source, progress: Progress) -> None:
    work = where.with_name(f".{where.name}.partial")
    shutil.rmtree(work, ignore_errors=True)  # left by a killed process: the lock excludes all others
    with files.atomic(where, work), contextlib.closing(Writer(work)) as writer:
        work.mkdir()
        progress(f"preparing {where.name}: {source.text}", 0, None)
        known, note = _identified(task, source, progress)
        source.fill(writer, progress)
        others = [f"test@{name}" for name in task.settings(options)]
        for split, part in product([*SPLITS, *others], ("inputs", "labels")):
            if (name := f"{split}-{part}") not in writer.arrays:
                raise LrurunError(
                    f"{where.name}: the array {name} is missing: the code of task {task.name} has not written it",
                    f'the `fill` of its Source must save it: writer.save("{split}", "{part}", array)',
                )
        progress("computing digests", 0, None)
        digests = writer.finish()
        if task.code:  # lrurun's own tasks are tested, and `load` checks all
            array_checks.check_made(task, options, writer, where.name)
        found = {split: writer.arrays[f"{split}-labels"].shape[0] for split in SPLITS}
        baselines = _majority(task, task.spec(options, writer.vocabulary), work) | writer.baselines
        table = {
            "task": task.name,
            "version": task.version,
            "code": task.code,
            "options": canonical(options),
            "source": source.text,
            "kind": source.kind,
            "published": known,
            "generator": source.generator,
            "counts": found,
            "settings": {split: writer.arrays[f"{split}-labels"].shape[0] for split in others},
            "sha256": digests,
            "vocabulary": writer.vocabulary,
            "baselines": baselines,
            "notes": [*note, *writer.notes, *_count_notes(task, options, found, where)],
            "lrurun": VERSION,
        }
        path = work / "manifest.json"
        path.write_text(json.dumps({k: v for k, v in table.items() if v not in ([], {}, "", None)}, indent=1) + "\n")
        shutil.rmtree(before := where.with_name(f".{where.name}.before"), ignore_errors=True)
        if where.exists():
            where.replace(before)
    shutil.rmtree(before, ignore_errors=True)


def _majority(task: Task, spec: Spec, work: Path) -> dict[str, float]:
    """The score of the most frequent class everywhere, where that is the metric's chance; empty for other metrics."""
    metric = task.metric
    if metric.naive != MAJORITY or not {*metric.sums} <= {"correct", "confusion"}:
        return {}
    train, test = (
        arrays.count_classes(np.load(work / f"{split}-labels.npy", mmap_mode="r", allow_pickle=False), spec.classes)
        for split in ("train", "test")
    )
    if not (train.any() and test.any()):
        return {}
    confusion = np.zeros((1, spec.classes, spec.classes))
    confusion[0, :, train.argmax()] = test
    correct = test[train.argmax(), None]
    return {MAJORITY: metric.value({"confusion": confusion, "correct": correct, "count": test.sum(keepdims=True)})}


def _identified(task: Task, source: Source, progress: Progress) -> tuple[Published | None, list[str]]:
    """Whether the data are the published ones, if they are not generated or packaged, and notes if they are not."""
    if source.published is not None or source.kind not in ("folder", "download"):
        return source.published, []
    if source.archive is None:
        return "unverified", []
    if source.kind == "download":  # compared with the published digest already
        return ("yes" if all(remote.sha256 for remote in task.remotes) else "unverified"), []
    known, note = published.identify(source.archive, task.remotes, progress)
    return known, [note] if note else []


def _source(task: Task, options: Options, where: Path, from_path: Path | None, progress: Progress) -> Source:
    if from_path is not None:
        if not from_path.exists():
            raise LrurunError(f"--from {from_path}: no such file or folder", f"it takes {task.wanted or 'nothing'}")
        found = task.find(from_path, options)
        if found is None:
            takes = f"it takes {task.wanted}" if task.wanted else f"{task.name} needs none: omit --from"
            raise LrurunError(f"--from {from_path}: no copy of {task.name} is there", takes)
        return found
    if (reduced := _reduced(task, options, where, progress)) is not None:
        return reduced
    if task.remotes:
        return _downloaded(task, options, where, progress)
    offline = task.offline(options)
    if offline is None:
        raise LrurunError(
            f"{task.name}: its data can neither be downloaded nor generated", obtaining.how_to_get(task, where)
        )
    return offline


def _reduced(task: Task, options: Options, where: Path, progress: Progress) -> Source | None:
    """The data from prepared ones of another profile, or from the full ones, if they have what is wanted."""
    for folder in (where.parent / task.name, *sorted(where.parent.glob(f"{task.name}-*"))):
        try:
            table = _read(folder / "manifest.json") if folder != where else None
            if table is None or table["task"] != task.name or table.get("code", "") != task.code:
                continue
            full = decoding.convert(table.get("options", {}), task.options, str(folder))
            reduction = task.reduction(options, full)
            if reduction is None or manifest(task, full, folder) is None:
                continue
        except LrurunError as error:  # of another version, or damaged
            progress(f"{folder} is not used: {error.message}", 0, None)
            continue
        return _from_prepared(task, full, folder, reduction, table)
    return None


def _from_prepared(task: Task, full: Options, folder: Path, reduction: Reduction, table: dict[str, Any]) -> Source:
    counted = _count_notes(task, full, table["counts"], folder)

    def fill(writer: Writer, progress: Progress) -> None:
        reduction(load(task, full, folder, progress=progress), writer, progress)
        writer.notes += [note for note in table.get("notes", ()) if note not in counted]

    known = published.complete(table, task)
    return Source(
        kind=known.get("kind", "embedded"),
        text=f"{table['source']}, by way of {folder.absolute()}",
        fill=fill,
        generator=table.get("generator", {}),
        published=known.get("published"),
    )


def _downloaded(task: Task, options: Options, where: Path, progress: Progress) -> Source:
    folder = where.parent / "downloads"
    try:
        for remote in task.remotes:
            download.fetch(remote, folder, progress)
    except LrurunError as error:
        offline = task.offline(options)
        if offline is None:
            names = ", ".join(remote.name for remote in task.remotes)
            raise LrurunError(
                f"{task.name}: the data are missing and could not be downloaded: {error.message}",
                f"{error.hint or f'put {names} into {folder}'}, or {obtaining.how_to_get(task, where)}",
            ) from None
        progress(error.message, 0, None)
        return offline
    found = task.find(folder, options)
    if found is None:
        raise LrurunError(
            f"{folder}: {task.name} was not found in what was downloaded", obtaining.how_to_get(task, where)
        )
    return structs.replace(found, kind="download", text=f"{task.remotes[0].url} ({found.text})")


def _count_notes(task: Task, options: Options, counts: Mapping[str, int], where: Path) -> list[str]:
    """Notes on splits whose size differs a little from the published one, where a task tolerates that.

    Raises:
        LrurunError: a larger difference.
    """
    notes = []
    for split, wanted in task.sizes(options).items():
        found, tolerance = counts[split], task.tolerance(split)
        if tolerance is None:
            continue
        if abs(found - wanted) > tolerance:
            raise LrurunError(
                f"{where}: {split}: expected {wanted:,} examples, found {found:,}",
                f"the code of task {task.name} wrote it, and its sizes() returns another number: correct one of them"
                if task.code
                else "the source is not the published data: try another copy",
            )
        if found != wanted:
            notes.append(f"{split} has {found:,} examples, the published data have {wanted:,}")
    return notes


def load(
    task: Task, options: Options, where: Path, protocol: str = "holdout", progress: Progress = no_progress
) -> Data:
    """The prepared arrays, memory-mapped, after verification of their digests, counts, types and shapes.

    With protocol "paper", training also uses the validation split, and selection uses the test split, as published.

    Raises:
        LrurunError: the data are missing, changed or incomplete.
    """
    table = manifest(task, options, where)
    if table is None:
        raise obtaining.missing(task, where)
    spec = task.spec(options, table.get("vocabulary", ()))
    if spec.kind == "tokens" and len(table.get("vocabulary", ())) not in (0, spec.features):
        found = len(table["vocabulary"])
        raise LrurunError(f"{where}: expected a vocabulary of {spec.features:,} tokens, found {found:,}", _REMAKE)
    splits: Any = {split: _split(split, table, spec, where, progress) for split in SPLITS}
    settings = {
        name: _split(f"test@{name}", table, task.spec(of_setting), where, progress)
        for name, of_setting in task.settings(options).items()
    }
    _count_notes(task, options, table["counts"], where)
    if protocol == "paper":
        splits = {
            "train": _joined(splits["train"], splits["validation"]),
            "validation": splits["test"],
            "test": splits["test"],
        }
    return Data(
        spec=spec,
        sha256=digest(table),
        source=table["source"],
        kind=table.get("kind", "embedded"),
        published=table.get("published"),
        baselines=table.get("baselines", {}),
        vocabulary=table.get("vocabulary", ()),
        metrics=task.metrics,
        sampler=task.sampler(options),
        settings=settings,
        **splits,
    )


def _split(split: str, table: Mapping[str, Any], spec: Spec, where: Path, progress: Progress) -> Split:
    parts: dict[str, np.ndarray] = {}
    again = _IMPORT if table.get("kind") == "imported" else _REMAKE
    for part in PARTS:
        name = f"{split}-{part}"
        if name in table["sha256"]:
            progress(f"checking {name}.npy", 0, None)
            parts[part] = _mapped(where / f"{name}.npy", table["sha256"][name], again)
    wanted = (table["counts"] | table.get("settings", {}))[split]
    for part in ("inputs", "labels"):
        count = len(parts[part]) if part in parts else 0
        if count != wanted:
            raise LrurunError(f"{where}: {split}-{part}: expected {wanted} examples, found {count}", again)
    for part, array in parts.items():
        array_checks.check(array, part, spec, f"{where}: {split}-{part}", _remake(table))
    return Split(**parts)


def _mapped(path: Path, expected: str, hint: str) -> np.ndarray:
    """The array in a `.npy` file with this digest. Python objects are refused."""
    try:
        reading.open_regular(path).close()
        if sha256(path) != expected:
            raise LrurunError(f"{path}: its digest is not that in the manifest", hint)
        return np.atleast_1d(np.lib.format.open_memmap(path, mode="r"))
    except LrurunError:
        raise
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", hint) from None
    except Exception as error:  # NumPy raises many types for an invalid header
        raise LrurunError(f"{path}: not an array of numbers: {reading.first_line(error)}", hint) from None


def _remake(table: Mapping[str, Any]) -> str:
    """A hint for arrays that do not fit the task: of a plug-in's task, its code must be corrected first."""
    if not table.get("code"):
        return _REMAKE
    return f"the code of task {table['task']} wrote it: correct its spec() or `fill`, then add --force to data prepare"


def _joined(first: Split, second: Split) -> Split:
    lengths = None
    if first.lengths is not None and second.lengths is not None:
        lengths = np.concatenate([first.lengths, second.lengths])
    return Split(
        inputs=np.concatenate([first.inputs, second.inputs]),
        labels=np.concatenate([first.labels, second.labels]),
        lengths=lengths,
    )


def digest(table: Mapping[str, Any]) -> str:
    """One digest over those of all arrays."""
    text = "".join(f"{name}={value}\n" for name, value in sorted(table["sha256"].items()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _settings(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in options.items()) or "the published settings"
