"""Prepared data on disk: `.npy` arrays beside a manifest, written whole or not at all, verified when read."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from lrurun import __version__
from lrurun.config import canonical
from lrurun.errors import LrurunError
from lrurun.tasks import containers, download
from lrurun.tasks.base import SPLITS, Data, Options, Source, Spec, Split, Task, Tell
from lrurun.tasks.writer import Writer, check_array

_HINT = "remove the folder, and run the command again: it is made anew"
_SPACE = "check space and permissions, or choose another folder with --data-dir"

PARTS = ("inputs", "labels", "lengths")

_MANIFEST = 64 << 20
"""Bytes of a manifest, at most: nearly all of it is the vocabulary, of which a million words would be about 16 MB."""

_Name = Annotated[str, Meta(max_length=1000)]
_Text = Annotated[str, Meta(max_length=10_000)]
"""For people: a path has 4,096 bytes."""
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Counts(msgspec.Struct):
    train: _Count
    validation: _Count
    test: _Count


class _Manifest(msgspec.Struct):
    """What a manifest holds; what is empty may be left out, and what a later version adds is not looked at."""

    task: _Name
    version: _Name
    source: _Text
    counts: _Counts
    sha256: dict[
        Annotated[str, Meta(pattern=r"^(train|validation|test)-(inputs|labels|lengths)\Z")],
        Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")],
    ]
    code: _Name = ""
    options: dict[str, Any] = {}
    kind: Literal["embedded", "folder", "download", "generated"] = "embedded"
    generator: dict[str, Any] = {}
    vocabulary: list[_Name] = []
    baselines: dict[_Name, Annotated[float, Meta(ge=-1e9, le=1e9)]] = {}
    notes: list[_Text] = []
    lrurun: _Name = ""


def quiet(what: str, done: int, total: int | None) -> None:
    """A `Tell` that says nothing."""


def manifest(task: Task, options: Options, where: Path) -> dict[str, Any] | None:
    """The manifest of the folder `where`, or None where nothing is prepared.

    Raises:
        LrurunError: something stands there that is not this task's data in this version with these options.
    """
    path = where / "manifest.json"
    try:
        with containers.opened(path) as file:
            table: dict[str, Any] = json.loads(containers.whole(file, _MANIFEST, str(path)), parse_constant=_no_number)
        msgspec.convert(table, _Manifest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", "check the data folder and its permissions") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise LrurunError(f"{path}: not a manifest: {error}", _HINT) from None
    except RecursionError:
        raise LrurunError(f"{path}: not a manifest: nested too deeply", _HINT) from None
    if table.get("task") != task.name or table.get("version") != task.version:
        found = f"{table.get('task')} version {table.get('version')}"
        raise LrurunError(f"{path.parent}: expected {task.name} version {task.version}, found {found}", _HINT)
    if table.get("code", "") != task.code:
        raise LrurunError(f"{path.parent}: was made by another version of the file that task {task.name} is in", _HINT)
    if table.get("options", {}) != canonical(options):
        raise LrurunError(
            f"{path.parent}: expected data made with {_settings(canonical(options))}, "
            f"found {_settings(table.get('options', {}))}",
            "choose another folder with --data-dir, or remove this one and run the command again",
        )
    return table


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def prepare(
    task: Task, options: Options, where: Path, *, given: Path | None = None, tell: Tell = quiet
) -> dict[str, Any]:
    """Makes the data where they are missing, one process at a time; the manifest.

    Sources in this order: what stands there already, the copy `given`, a download, what needs nothing from outside.

    Raises:
        LrurunError: no source has them, one is damaged, or they cannot be written.
    """
    existing = manifest(task, options, where)
    if existing:
        return existing
    new = [folder for folder in where.parents if not folder.exists()]
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with _alone(where, tell):
            existing = manifest(task, options, where)
            if existing:
                return existing
            if where.exists():
                raise LrurunError(
                    f"{where}: a folder without a manifest is in the way",
                    "move it away, or choose another folder with --data-dir",
                )
            return _make(task, options, where, _source(task, options, where, given, tell), tell)
    except OSError as error:
        raise LrurunError(f"{error.filename or where}: {error.strerror}", _SPACE) from None
    finally:
        with contextlib.suppress(OSError):
            for folder in new:
                folder.rmdir()  # goes only while it is empty


def _make(task: Task, options: Options, where: Path, source: Source, tell: Tell) -> dict[str, Any]:
    work = where.with_name(f".{where.name}.partial")
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed: whoever holds the lock is alone here
    work.mkdir()
    writer = Writer(work)
    try:
        tell(f"preparing {where.name}: {source.text}", 0, None)
        source.fill(writer, tell)
        tell("computing digests", 0, None)
        digests = writer.finish()
        counts = {split: writer.arrays[f"{split}-labels"].shape[0] for split in SPLITS}
        table = {
            "task": task.name,
            "version": task.version,
            "code": task.code,
            "options": canonical(options),
            "source": source.text,
            "kind": source.kind,
            "generator": source.generator,
            "counts": counts,
            "sha256": digests,
            "vocabulary": writer.vocabulary,
            "baselines": writer.baselines,
            "notes": writer.notes + _unlike(task, options, counts, str(where)),
            "lrurun": __version__,
        }
        path = work / "manifest.json"
        path.write_text(json.dumps({k: v for k, v in table.items() if v not in ([], {}, "")}, indent=1) + "\n")
        work.rename(where)
    finally:
        writer.close()
        shutil.rmtree(work, ignore_errors=True)
    found = manifest(task, options, where)
    assert found is not None
    return found


def _source(task: Task, options: Options, where: Path, given: Path | None, tell: Tell) -> Source:
    if given is not None:
        if not given.exists():
            raise LrurunError(f"--from {given}: there is nothing there", f"it takes {task.wanted or 'nothing'}")
        found = task.find(given, options)
        if found is None:
            takes = f"it takes {task.wanted}" if task.wanted else f"{task.name} needs none: leave --from out"
            raise LrurunError(f"--from {given}: no copy of {task.name} is there", takes)
        return found
    if task.remotes:
        return _downloaded(task, options, where, tell)
    offline = task.offline(options)
    if offline is None:
        raise LrurunError(f"{task.name}: its data can neither be downloaded nor generated", how_to_get(task, where))
    return offline


def _downloaded(task: Task, options: Options, where: Path, tell: Tell) -> Source:
    folder = where.parent / "downloads"
    try:
        for remote in task.remotes:
            download.fetch(remote, folder, tell)
    except LrurunError as error:
        offline = task.offline(options)
        if offline is None:
            names = ", ".join(remote.name for remote in task.remotes)
            raise LrurunError(
                f"{task.name}: the data are missing and could not be downloaded: {error.message}",
                f"{error.hint or f'put {names} into {folder}'}, or {how_to_get(task, where)}",
            ) from None
        tell(error.message, 0, None)
        return offline
    found = task.find(folder, options)
    if found is None:
        raise LrurunError(f"{folder}: {task.name} was not found in what was downloaded", how_to_get(task, where))
    return Source(kind="download", text=f"{task.remotes[0].url} ({found.text})", fill=found.fill)


def how_to_get(task: Task, where: Path) -> str:
    """What to do with a copy that a person has."""
    return f"if you have a copy: lrurun data prepare {_words(task, where)} --from PATH, where PATH is {task.wanted}"


def _words(task: Task, where: Path) -> str:
    """The words after `lrurun data prepare`: a folder of other data is named `<task>-<profile>`."""
    profile = where.name.removeprefix(task.name).removeprefix("-")
    return f"{task.name} --profile {profile}" if profile else task.name


def _unlike(task: Task, options: Options, counts: dict[str, int], where: str) -> list[str]:
    """Notes on counts that are a little off where a task allows that.

    Raises:
        LrurunError: they are off by more.
    """
    notes = []
    for split, wanted in task.sizes(options).items():
        found = counts[split]
        if abs(found - wanted) > task.tolerance(split):
            raise LrurunError(
                f"{where}: {split}: expected {wanted:,} examples, found {found:,}",
                "the source is not the published data: another copy may be",
            )
        if found != wanted:
            notes.append(f"{split} has {found:,} examples, the published data have {wanted:,}")
    return notes


@contextlib.contextmanager
def _alone(where: Path, tell: Tell) -> Iterator[None]:
    """One process at a time for this folder; a killed one lets go by itself. The lock file is gone afterwards."""
    path = where.with_name(f".{where.name}.lock")
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell(f"waiting for another process that prepares {where.name}", 0, None)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                same = os.path.samestat(os.fstat(descriptor), os.stat(path))
            except FileNotFoundError:
                same = False  # the one before removed it as it left: ours is no lock any more
            if same:
                try:
                    yield
                finally:
                    with contextlib.suppress(OSError):
                        path.unlink()
                return
        finally:
            os.close(descriptor)


def load(task: Task, options: Options, where: Path, protocol: str = "holdout", tell: Tell = quiet) -> Data:
    """The prepared arrays, memory-mapped, after their digests and counts were checked.

    With protocol "paper", training uses the validation split too and selection the test split, as was published.

    Raises:
        LrurunError: missing, changed or incomplete data.
    """
    table = manifest(task, options, where)
    if table is None:
        raise LrurunError(
            f"{where}: there are no prepared data for {task.name}", f"run: lrurun data prepare {_words(task, where)}"
        )
    spec = task.spec(options, table.get("vocabulary", ()))
    if spec.kind == "tokens" and len(table.get("vocabulary", ())) not in (0, spec.features):
        found = len(table["vocabulary"])
        raise LrurunError(f"{where}: expected a vocabulary of {spec.features:,} tokens, found {found:,}", _HINT)
    splits: dict[str, Split] = {}
    for split in SPLITS:
        parts: dict[str, np.ndarray] = {}
        for part in PARTS:
            name = f"{split}-{part}"
            if name not in table["sha256"]:
                continue
            path = where / f"{name}.npy"
            try:
                tell(f"checking {path.name}", 0, None)
                with containers.opened(path) as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != table["sha256"][name]:
                        raise LrurunError(f"{path}: not the bytes that the manifest names", _HINT)
                    parts[part] = _mapped(path, file)
            except OSError as error:
                raise LrurunError(f"{path}: {error.strerror}", _HINT) from None
        for part in ("inputs", "labels"):
            count = len(parts[part]) if part in parts else 0
            wanted = table["counts"][split]
            if count != wanted:
                raise LrurunError(f"{where}: {split}-{part}: expected {wanted} examples, found {count}", _HINT)
        for part, array in parts.items():
            _check(array, part, spec, f"{where}: {split}-{part}")
        splits[split] = Split(**parts)
    _unlike(task, options, table["counts"], str(where))
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
        baselines=table.get("baselines", {}),
        **splits,
    )


def _mapped(path: Path, file: IO[bytes]) -> np.ndarray:
    """The array in a `.npy` file, of which only numbers are taken."""
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        check_array(file, size)
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # whatever a made-up head leads to
        raise LrurunError(f"{path}: not an array of numbers: {containers.line(error)}", _HINT) from None
    return array if array.ndim else array.reshape(1)


def _check(array: np.ndarray, part: str, spec: Spec, name: str) -> None:
    """Whether an array can be what the task says it is: a wrong label or token would be clipped, and train on.

    Raises:
        LrurunError: its type, its shape, or a value.
    """
    count, pairs = len(array), (2,) if spec.pair else ()
    shapes: dict[str, list[tuple[int, ...]]] = {
        "inputs": [(count, *pairs, spec.length)],
        "labels": [(count,)],
        "lengths": [(count, *pairs)],
    }
    least, most = {"inputs": (0, spec.features - 1), "labels": (0, spec.classes - 1), "lengths": (1, spec.length)}[part]
    measured = part == "inputs" and spec.kind == "features"
    if measured:
        shapes[part] = [(count, spec.length, spec.features)] + shapes[part] * (spec.features == 1)
    if array.dtype.kind not in ("iuf" if measured else "iu") or not array.dtype.isnative:
        raise LrurunError(f"{name}: expected {'' if measured else 'whole '}numbers, found {array.dtype}", _HINT)
    if array.shape not in shapes[part]:
        raise LrurunError(f"{name}: expected the shape {shapes[part][0]}, found {array.shape}", _HINT)
    if measured or not array.size:
        return
    found = (int(array.min()), int(array.max()))
    if found[0] < least or found[1] > most:
        raise LrurunError(f"{name}: expected numbers from {least} to {most}, found {found[0]} to {found[1]}", _HINT)


def _joined(first: Split, second: Split) -> Split:
    lengths = None
    if first.lengths is not None and second.lengths is not None:
        lengths = np.concatenate([first.lengths, second.lengths])
    return Split(
        inputs=np.concatenate([first.inputs, second.inputs]),
        labels=np.concatenate([first.labels, second.labels]),
        lengths=lengths,
    )


def digest(table: dict[str, Any]) -> str:
    """One digest over those of all arrays."""
    text = "".join(f"{name}={value}\n" for name, value in sorted(table["sha256"].items()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _settings(options: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in options.items()) or "the published settings"
