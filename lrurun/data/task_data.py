"""Prepared data on disk: `.npy` arrays beside a manifest, written completely or not at all, verified when loaded."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import shutil
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
import numpy as np
from msgspec import Meta, structs

from lrurun import decoding, files, plugins
from lrurun.console import no_progress
from lrurun.data import arrays, download
from lrurun.data.arrays import Writer, sha256
from lrurun.data.copies import reading
from lrurun.data.metric import MAJORITY
from lrurun.data.task import SPLITS, Data, Options, Output, Progress, Published, Reduction, Source, Spec, Split, Task
from lrurun.decoding import canonical
from lrurun.errors import LrurunError
from lrurun.version import VERSION

PARTS = ("inputs", "labels", "lengths", "groups")

_REMAKE = "remove the folder, and run the command again: it prepares the data again"
_IMPORT = "remove the folder, and import the same arrays again: lrurun data import"
_SPACE = "check space and permissions, or choose another folder with --data-dir"
_MANIFEST_LIMIT = 64 << 20
"""Bytes of a manifest: nearly all of it is the vocabulary, of which a million tokens would be about 16 MB."""

_Name = Annotated[str, Meta(max_length=1000)]
_Text = Annotated[str, Meta(max_length=10_000)]
"""A text for people; the longest path has 4,096 bytes."""
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Counts(msgspec.Struct, frozen=True):
    """Examples of each split."""

    train: _Count
    validation: _Count
    test: _Count


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The manifest of prepared data. Empty fields may be omitted; those that later versions add are ignored."""

    task: _Name
    version: _Name
    source: _Text
    counts: Counts
    sha256: dict[
        Annotated[str, Meta(pattern=r"^(train|validation|test|test@[A-Za-z0-9_.]+)-(inputs|labels|lengths|groups)\Z")],
        Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")],
    ]
    """Name of an array -> the digest of its file."""
    kind: Literal["embedded", "folder", "download", "generated", "imported"]
    code: _Name = ""
    """Digest of the file that defines a plug-in's task."""
    options: dict[str, Any] = {}
    further_tests: dict[_Name, _Count] = {}
    """Further test split -> its number of examples."""
    published: Published | None = None
    generator: dict[str, Any] = {}
    vocabulary: list[_Name] = []
    baselines: dict[_Name, Annotated[float, Meta(ge=-1e9, le=1e9)]] = {}
    notes: list[_Text] = []
    lrurun: _Name = ""


def manifest(task: Task, options: Options, folder: Path) -> Manifest | None:
    """The manifest in `folder`, or None if nothing is prepared there.

    Raises:
        LrurunError: the folder does not hold this version of the task's data with these options.
    """
    stored = _read(folder / "manifest.json")
    if stored is None:
        return None
    if (stored.task, stored.version) != (task.name, task.version):
        actual = f"{stored.task} version {stored.version}"
        raise LrurunError(
            f"{folder}: expected {task.name} version {task.version}, found {actual}",
            task.restore or (_again(task, folder) if stored.task == task.name else _REMAKE),
        )
    if bool(stored.code) != bool(task.code):
        lrurun_task, plugin_task = f"lrurun's own task {task.name}", f"the task {task.name} of a plug-in"
        actual, expected = (plugin_task, lrurun_task) if stored.code else (lrurun_task, plugin_task)
        raise LrurunError(f"{folder}: has the data of {actual}, expected those of {expected}", "rename your task")
    if edited := edit(task, stored, folder):
        stored = structs.replace(stored, notes=[*stored.notes, edited])
    if stored.options != canonical(options):
        raise LrurunError(
            f"{folder}: expected data made with {_settings(canonical(options))}, found {_settings(stored.options)}",
            task.restore or "choose another folder with --data-dir, or remove this one and run the command again",
        )
    return stored


def manifest_in(folder: Path) -> Manifest | None:
    """The manifest in a folder, of whatever task, or None if nothing is prepared there.

    Raises:
        LrurunError: it cannot be read, or an array that it lists is missing or has another size.
    """
    stored = _read(folder / "manifest.json")
    if stored is not None:
        check_sizes(stored, folder)
    return stored


def _read(path: Path) -> Manifest | None:
    try:
        with reading.open_regular(path) as file:
            content = reading.read(file, _MANIFEST_LIMIT, str(path))
        return msgspec.json.decode(content, type=Manifest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", "check the data folder and its permissions") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise LrurunError(f"{path}: not a manifest: {error}", _REMAKE) from None


def prepare(
    task: Task,
    options: Options,
    folder: Path,
    *,
    from_path: Path | None = None,
    force: bool = False,
    progress: Progress = no_progress,
) -> Manifest:
    """Prepares the data in `folder` unless they are there, one process at a time; returns the manifest.

    Args:
        from_path: a copy of the data; by default they are downloaded, or generated if that fails or is not possible.
        force: prepare them again if they are there; the previous ones are kept until that has succeeded.

    Raises:
        LrurunError: no source is available, it is damaged, or the data cannot be written.
    """
    existing = None if force else manifest(task, options, folder)
    if existing:
        return existing
    new_parents = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = f"waiting for another process that prepares {folder.name}"
        with files.locked(folder.with_name(f".{folder.name}.lock"), lambda: progress(waiting, 0, None)):
            existing = None if force else manifest(task, options, folder)
            if existing:
                return existing
            if folder.exists() and not (force and (folder / "manifest.json").is_file()):
                raise LrurunError(
                    f"{folder}: this folder exists, but has no manifest",
                    "move it away, or choose another folder with --data-dir",
                )
            _make(task, options, folder, _source(task, options, folder, from_path, progress), progress)
    except OSError as error:
        if (fault := plugins.fault(error)) is not None:
            raise fault from error
        raise LrurunError(f"{error.filename or folder}: {error.strerror}", _SPACE) from None
    finally:
        with contextlib.suppress(OSError):
            for parent in new_parents:
                parent.rmdir()  # succeeds only while it is empty
    prepared = manifest(task, options, folder)
    assert prepared is not None
    return prepared


def manifest_to_remove(task: Task, folder: Path) -> Manifest | None:
    """The manifest of data that are to be removed, also of another version of the task; None if it cannot be read.

    Raises:
        LrurunError: there are no data of the task in the folder, or it is a link.
    """
    if folder.is_symlink():
        raise LrurunError(
            f"{folder}: is a link to {folder.resolve()}", "look what uses that folder, and remove it yourself"
        )
    if not (folder / "manifest.json").is_file():
        if folder.exists():
            raise LrurunError(f"{folder}: has no manifest: it is not known what it has", "look, and remove it yourself")
        raise LrurunError(f"{folder}: there are no prepared data for {task.name}", "nothing has to be removed")
    try:
        stored = _read(folder / "manifest.json")
    except LrurunError:
        return None
    if stored is not None and stored.task != task.name:
        raise LrurunError(f"{folder}: has the data of {stored.task}, expected those of {task.name}", "name that task")
    return stored


def size_of(folder: Path) -> int:
    """The bytes of the files of prepared data."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def remove(folder: Path, progress: Progress = no_progress) -> None:
    """Removes prepared data. They are renamed first, to a name that is no data's: half of them look like nothing.

    Raises:
        LrurunError: they are gone already, or cannot be removed.
    """
    removed = folder.with_name(f".{folder.name}.removed")
    waiting = f"waiting for another process that prepares or removes {folder.name}"
    try:
        with files.locked(folder.with_name(f".{folder.name}.lock"), lambda: progress(waiting, 0, None)):
            files.remove_tree(removed)  # left by a killed process
            if not folder.exists():
                raise LrurunError(f"{folder}: another process has removed it", "nothing has to be removed")
            folder.rename(removed)
            files.remove_tree(removed)
    except OSError as error:
        raise LrurunError(
            f"{error.filename or folder}: {error.strerror}", "check the permissions of the data folder"
        ) from None


def _make(task: Task, options: Options, folder: Path, source: Source, progress: Progress) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    for left in (partial, folder.with_name(f".{folder.name}.removed")):
        shutil.rmtree(left, ignore_errors=True)  # left by a killed process: the lock excludes all others
    with files.atomic(folder, partial), contextlib.closing(Writer(partial)) as writer:
        partial.mkdir()
        progress(f"preparing {folder.name}: {source.text}", 0, None)
        known, note = _identified(task, source, progress)
        source.fill(writer, progress)
        further_splits = [f"test@{name}" for name in task.further_tests(options)]
        for split, part in product([*SPLITS, *further_splits], ("inputs", "labels")):
            if (name := f"{split}-{part}") not in writer.arrays:
                raise LrurunError(
                    f"{folder.name}: the array {name} is missing: the code of task {task.name} has not written it",
                    f'the `fill` of its Source must save it: writer.save("{split}", "{part}", array)',
                )
        progress("computing digests", 0, None)
        digests = writer.finish()
        _check_written(task, options, writer, folder.name)
        counts = {split: writer.arrays[f"{split}-labels"].shape[0] for split in SPLITS}
        baselines = _majority(task, task.spec(options, writer.vocabulary), partial) | writer.baselines
        made = Manifest(
            task=task.name,
            version=task.version,
            source=source.text,
            counts=Counts(**counts),
            sha256=digests,
            kind=source.kind,
            code=task.code,
            options=canonical(options),
            further_tests={split: writer.arrays[f"{split}-labels"].shape[0] for split in further_splits},
            published=known,
            generator=source.generator,
            vocabulary=writer.vocabulary,
            baselines=baselines,
            notes=[*note, *writer.notes, *_count_notes(task, options, counts, folder)],
            lrurun=VERSION,
        )
        # `json`, because a source may be a file name that is not UTF-8, which msgspec refuses
        (partial / "manifest.json").write_text(json.dumps(msgspec.to_builtins(made), indent=1) + "\n")
        shutil.rmtree(before := folder.with_name(f".{folder.name}.before"), ignore_errors=True)
        if folder.exists():
            folder.replace(before)
    shutil.rmtree(before, ignore_errors=True)


def _majority(task: Task, spec: Spec, folder: Path) -> dict[str, float]:
    """The score of the most frequent class everywhere, where that is the metric's chance; empty for other metrics."""
    metric = task.metric
    if metric.naive != MAJORITY or not {*metric.sums} <= {"correct", "confusion"}:
        return {}
    train, test = (
        arrays.count_classes(np.load(folder / f"{split}-labels.npy", mmap_mode="r", allow_pickle=False), spec.classes)
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
    known, note = download.identify(source.archive, source.remotes or task.remotes, progress)
    return known, [note] if note else []


def _source(task: Task, options: Options, folder: Path, from_path: Path | None, progress: Progress) -> Source:
    if from_path is not None:
        if not from_path.exists():
            raise LrurunError(f"--from {from_path}: no such file or folder", f"it takes {task.wanted or 'nothing'}")
        source = task.find(from_path, options)
        if source is None:
            takes = f"it takes {task.wanted}" if task.wanted else f"{task.name} needs none: omit --from"
            raise LrurunError(f"--from {from_path}: no copy of {task.name} is there", takes)
        return source
    if (reduced := _reduced(task, options, folder, progress)) is not None:
        return reduced
    if task.remotes:
        return _downloaded(task, options, folder, progress)
    offline = task.offline(options)
    if offline is None:
        raise LrurunError(f"{task.name}: its data can neither be downloaded nor generated", _how_to_get(task, folder))
    return offline


def _reduced(task: Task, options: Options, folder: Path, progress: Progress) -> Source | None:
    """The data from prepared ones of another profile, or from the full ones, if they have what is wanted."""
    for other_folder in (folder.parent / task.name, *sorted(folder.parent.glob(f"{task.name}-*"))):
        try:
            stored = _read(other_folder / "manifest.json") if other_folder != folder else None
            if stored is None or stored.task != task.name or stored.code != task.code:
                continue
            full = decoding.convert(stored.options, task.options, str(other_folder))
            reduction = task.reduction(options, full)
            if reduction is None or manifest(task, full, other_folder) is None:
                continue
        except LrurunError as error:  # of another version, or damaged
            progress(f"{other_folder} is not used: {error.message}", 0, None)
            continue
        return _from_prepared(task, full, other_folder, reduction, stored)
    return None


def _from_prepared(task: Task, full: Options, folder: Path, reduction: Reduction, original: Manifest) -> Source:
    counted = _count_notes(task, full, structs.asdict(original.counts), folder)

    def fill(writer: Writer, progress: Progress) -> None:
        reduction(load(task, full, folder, progress=progress), writer, progress)
        writer.notes += [note for note in original.notes if note not in counted]

    return Source(
        kind=original.kind,
        text=f"{original.source}, by way of {folder.absolute()}",
        fill=fill,
        generator=original.generator,
        published=original.published,
    )


def _downloaded(task: Task, options: Options, folder: Path, progress: Progress) -> Source:
    downloads = folder.parent / "downloads"
    try:
        for remote in task.remotes:
            download.fetch(remote, downloads, progress)
    except LrurunError as error:
        offline = task.offline(options)
        if offline is None:
            names = ", ".join(remote.name for remote in task.remotes)
            raise LrurunError(
                f"{task.name}: the data are missing and could not be downloaded: {error.message}",
                f"{error.hint or f'put {names} into {downloads}'}, or {_how_to_get(task, folder)}",
            ) from None
        progress(error.message, 0, None)
        return offline
    source = task.find(downloads, options)
    if source is None:
        raise LrurunError(f"{downloads}: {task.name} was not found in what was downloaded", _how_to_get(task, folder))
    return structs.replace(source, kind="download", text=f"{task.remotes[0].url} ({source.text})")


def _count_notes(task: Task, options: Options, counts: Mapping[str, int], folder: Path) -> list[str]:
    """Notes on splits whose size differs a little from the published one, where a task tolerates that.

    Raises:
        LrurunError: a larger difference.
    """
    notes = []
    for split, expected in task.sizes(options).items():
        actual, tolerance = counts[split], task.tolerance(split)
        if tolerance is None:
            continue
        if abs(actual - expected) > tolerance:
            raise LrurunError(
                f"{folder}: {split}: expected {expected:,} examples, found {actual:,}",
                f"the code of task {task.name} wrote it, and its sizes() returns another number: correct one of them"
                if task.code
                else "the source is not the published data: try another copy",
            )
        if actual != expected:
            notes.append(f"{split} has {actual:,} examples, the published data have {expected:,}")
    return notes


def load(
    task: Task, options: Options, folder: Path, protocol: str = "holdout", progress: Progress = no_progress
) -> Data:
    """The prepared arrays, memory-mapped, after verification of their digests, counts, types and shapes.

    With protocol "paper", training also uses the validation split, and selection uses the test split, as published.

    Raises:
        LrurunError: the data are missing, changed or incomplete.
    """
    stored = manifest(task, options, folder)
    if stored is None:
        raise missing(task, folder)
    spec = task.spec(options, stored.vocabulary)
    if spec.kind == "tokens" and len(stored.vocabulary) not in (0, spec.features):
        actual = len(stored.vocabulary)
        raise LrurunError(f"{folder}: expected a vocabulary of {spec.features:,} tokens, found {actual:,}", _REMAKE)
    # arrays with these digests fitted the code which made them
    changed = stored.code != task.code
    splits: Any = {split: _split(split, stored, spec, folder, progress, values=changed) for split in SPLITS}
    further_tests = {
        name: _split(f"test@{name}", stored, task.spec(test_options), folder, progress, values=changed)
        for name, test_options in task.further_tests(options).items()
    }
    _count_notes(task, options, structs.asdict(stored.counts), folder)
    if protocol == "paper":
        splits = {
            "train": _joined(splits["train"], splits["validation"]),
            "validation": splits["test"],
            "test": splits["test"],
        }
    return Data(
        spec=spec,
        sha256=digest(stored.sha256),
        source=stored.source,
        kind=stored.kind,
        published=stored.published,
        baselines=stored.baselines,
        vocabulary=stored.vocabulary,
        metrics=task.metrics,
        sampler=task.sampler(options),
        further_tests=further_tests,
        **splits,
    )


def _split(split: str, stored: Manifest, spec: Spec, folder: Path, progress: Progress, *, values: bool) -> Split:
    """The arrays of a split, verified by their digests; `values`: whether every number is compared with the task."""
    parts: dict[str, np.ndarray] = {}
    hint = _IMPORT if stored.kind == "imported" else _REMAKE
    for part in PARTS:
        name = f"{split}-{part}"
        if name in stored.sha256:
            progress(f"checking {name}.npy", 0, None)
            parts[part] = _mapped(folder / f"{name}.npy", stored.sha256[name], hint)
    expected = (structs.asdict(stored.counts) | stored.further_tests).get(split, 0)
    for part in ("inputs", "labels"):
        count = len(parts[part]) if part in parts else 0
        if count != expected:
            raise LrurunError(f"{folder}: {split}-{part}: expected {expected} examples, found {count}", hint)
    for part, array in parts.items():
        check(array, part, spec, f"{folder}: {split}-{part}", _remake(stored), values=values)
    return Split(**parts)


def check_sizes(manifest: Manifest, folder: Path) -> None:
    """Checks that all arrays of a manifest are there in full, without reading their numbers, as `load` does.

    Raises:
        LrurunError: one is missing, or has another number of bytes than its header says.
    """
    for name in manifest.sha256:
        _mapped(folder / f"{name}.npy", None, _IMPORT if manifest.kind == "imported" else _REMAKE)


def _mapped(path: Path, expected: str | None, hint: str) -> np.ndarray:
    """The array in a `.npy` file, with this digest if one is expected. Python objects are refused."""
    try:
        reading.open_regular(path).close()
        if expected is not None and sha256(path) != expected:
            raise LrurunError(f"{path}: its digest is not that in the manifest", hint)
        array = np.lib.format.open_memmap(path, mode="r")
        if path.stat().st_size != array.offset + array.nbytes:
            raise LrurunError(f"{path}: has more bytes than its header says", hint)
        return np.atleast_1d(array)
    except LrurunError:
        raise
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", hint) from None
    except Exception as error:  # NumPy raises many types for an invalid header
        problem = "has fewer bytes than its header says"
        if "mmap length" not in str(error):
            problem = f"not an array of numbers: {reading.first_line(error)}"
        raise LrurunError(f"{path}: {problem}", hint) from None


def _remake(stored: Manifest) -> str:
    """A hint for arrays that do not fit the task: of a plug-in's task, its code must be corrected first."""
    if not stored.code:
        return _REMAKE
    return f"the code of task {stored.task} wrote it: correct its spec() or `fill`, then add --force to data prepare"


def _joined(first: Split, second: Split) -> Split:
    lengths = None
    if first.lengths is not None and second.lengths is not None:
        lengths = np.concatenate([first.lengths, second.lengths])
    return Split(
        inputs=np.concatenate([first.inputs, second.inputs]),
        labels=np.concatenate([first.labels, second.labels]),
        lengths=lengths,
    )


def digest(sha256: Mapping[str, str]) -> str:
    """One digest over the digests of all arrays, by name."""
    text = "".join(f"{name}={value}\n" for name, value in sorted(sha256.items()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _settings(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in options.items()) or "the published settings"


def to_obtain(task: Task, options: Options, folder: Path) -> str | None:
    """What missing data need: a download, or a copy that the user has. None for data that are there, and for data that
    lrurun has, generates, or makes from others that are prepared."""
    if manifest(task, options, folder) is not None:
        return None
    subject = f"the data of {task.name} are not in {folder}"
    if task.restore:
        return f"{subject}, and must come from you: {task.restore}"
    if _reduced(task, options, folder, no_progress) is not None:
        return None
    downloads = folder.parent / "downloads"
    if remotes := [remote for remote in task.remotes if not (downloads / remote.name).is_file()]:
        sizes = [remote.bytes for remote in remotes]
        size = f"{len(remotes)} files" if None in sizes else _megabytes(sum(filter(None, sizes)))
        hosts = dict.fromkeys(str(urlsplit(remote.url).hostname) for remote in remotes)
        names = ", ".join(remote.name for remote in remotes)
        return f"{subject}: {size} to download from {', '.join(hosts)} ({names})"
    if task.remotes or task.offline(options) is not None:
        return None
    return f"{subject}, and must come from you; {_how_to_get(task, folder)}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def missing(task: Task, folder: Path, arguments: str = "") -> LrurunError:
    """The error for data that are not in `folder`; `arguments` belong to a command that prepares them."""
    hint = task.restore or f"run: lrurun data prepare {arguments or _arguments_of(task, folder)}"
    return LrurunError(f"{folder}: there are no prepared data for {task.name}", hint)


def _how_to_get(task: Task, folder: Path) -> str:
    """A hint for users who have a copy; for authors, where the task has no way to get its data."""
    if not task.wanted:
        return f"define offline() in the class of task {task.name}, or find(), with `wanted`, which describes a copy"
    command = f"lrurun data prepare {_arguments_of(task, folder)} --from PATH"
    return f"if you have a copy: {command}, where PATH is {task.wanted}"


def _arguments_of(task: Task, folder: Path) -> str:
    """The arguments of `lrurun data prepare` for a folder: one with other data is named `<task>-<profile>`.

    A plug-in's task is named by its recipe and its file.
    """
    profile = folder.name.removeprefix(task.name).removeprefix("-")
    source = plugins.source_of("task", task.name)
    recipe = shlex.quote(task.recipe or "RECIPE.toml")
    named = f"{recipe} --load {shlex.quote(source.shown)}" if source else task.name
    return f"{named} --profile {profile}" if profile else named


def edit(task: Task, stored: Manifest, folder: Path) -> str | None:
    """A note if the file of a plug-in's task has changed since its data were prepared, and its version has not."""
    if stored.code == task.code:
        return None
    source = plugins.source_of("task", task.name)
    return (
        f"{source.shown if source else task.name} has changed since {folder} was prepared, but not its version "
        f"{task.version!r}: if its data are different now, change the version, "
        f"or {_again(task, folder)}"
    )


def _again(task: Task, folder: Path) -> str:
    """The command that replaces prepared data, as a hint."""
    return f"run: lrurun data prepare {_arguments_of(task, folder)} --force"


def check(array: np.ndarray, part: str, spec: Spec, name: str, hint: str, *, values: bool = True) -> None:
    """Refuses an array that does not fit the task; without `values` only by its type and shape.

    Raises:
        LrurunError: its type, its shape, or a value.
    """
    count, pairs = len(array), (2,) if spec.pair else ()
    if part == "labels" and spec.output != Output():
        _check_labels(array, spec, name, hint, numbers=values)
        return
    shapes: dict[str, list[tuple[int, ...]]] = {
        "inputs": [(count, *pairs, spec.length)],
        "labels": [(count,)],
        "lengths": [(count, *pairs)],
        "groups": [(count,)],
    }
    low, high = {
        "inputs": (0, spec.features - 1),
        "labels": (0, spec.classes - 1),
        "lengths": (1, spec.length),
        "groups": (0, 2**31 - 1),
    }[part]
    measured = part == "inputs" and spec.kind == "features"
    if measured:
        shapes[part] = [(count, spec.length, spec.features)] + shapes[part] * (spec.features == 1)
    if array.dtype.kind not in ("iuf" if measured else "iu") or not array.dtype.isnative:
        raise LrurunError(f"{name}: expected {'' if measured else 'whole '}numbers, found {array.dtype}", hint)
    if array.shape not in shapes[part]:
        raise LrurunError(f"{name}: expected the shape {shapes[part][0]}, found {array.shape}", hint)
    if not values:
        return
    if measured and array.dtype.kind == "f":
        _refuse(array, lambda rows: ~np.isfinite(rows), name, "finite numbers", hint)
    elif not measured:
        rule = f"numbers from {low} to {high}"
        _refuse(array, lambda rows: (rows < low) | (rows > high), name, rule, hint)


def _check_written(task: Task, options: Options, writer: Writer, folder: str) -> None:
    """Refuses arrays that the code of a task has just written, if they do not fit its declarations.

    Raises:
        LrurunError: an array that `check` refuses, or one with another number of examples than the labels.
    """
    hint = f"the code of task {task.name} wrote it: correct its `fill` or its spec()"
    specs = dict.fromkeys(SPLITS, task.spec(options, writer.vocabulary))
    specs |= {f"test@{name}": task.spec(test_options) for name, test_options in task.further_tests(options).items()}
    for split, spec in specs.items():
        count = writer.arrays[f"{split}-labels"].shape[0]
        for part in PARTS:
            if (array := writer.arrays.get(f"{split}-{part}")) is not None:
                name = f"{folder}: {split}-{part}"
                if array.shape[0] != count:
                    raise LrurunError(f"{name}: expected one for each of {count} labels, found {array.shape[0]}", hint)
                check(np.load(array.path, mmap_mode="r", allow_pickle=False), part, spec, name, hint)


def _refuse(array: np.ndarray, wrong: Callable[[np.ndarray], np.ndarray], name: str, expected: str, hint: str) -> None:
    """Refuses an array with a wrong number, and names the first example that has one."""
    begin = 0
    for rows in arrays.blocks(array):
        if (bad := wrong(rows)).any():
            at = np.unravel_index(bad.argmax(), bad.shape)
            index = f"{begin + int(at[0])}" + "".join(f", {int(k)}" for k in at[1:])
            raise LrurunError(f"{name}[{index}]: expected {expected}, found {rows[at]}", hint)
        begin += len(rows)


def _check_labels(array: np.ndarray, spec: Spec, name: str, hint: str, *, numbers: bool) -> None:
    """Refuses labels that do not fit an output at positions or of real values.

    Raises:
        LrurunError: their type, their shape, a class, or an example without a label.
    """
    output, values = spec.output, spec.output.loss == "squared-error"
    positions = (min(array.shape[1] if array.ndim > 1 else 0, spec.length),) if output.at == "positions" else ()
    shape = (len(array), *positions, *((spec.classes,) if values else ()))
    if array.dtype.kind not in ("f" if values else "iu") or not array.dtype.isnative:
        raise LrurunError(f"{name}: expected {'real' if values else 'whole'} numbers, found {array.dtype}", hint)
    if array.shape != shape or positions == (0,):
        raise LrurunError(f"{name}: expected the shape {shape}, found {array.shape}", hint)
    if not numbers:
        return
    if values:
        _refuse(array, np.isinf, name, "finite numbers, or NaN where there is no label", hint)
    else:
        rule = f"classes from 0 to {spec.classes - 1}, or -1 where there is no label"
        _refuse(array, lambda rows: (rows < -1) | (rows >= spec.classes), name, rule, hint)
    labelled = ((~np.isnan(rows)).all(axis=-1) if values else rows >= 0 for rows in arrays.blocks(array))
    per_example = np.concatenate([rows.reshape(len(rows), -1).sum(axis=1) for rows in labelled] or [np.zeros(0)])
    if array.size and not per_example.all():
        missing = "labelled position" if output.at == "positions" else "label"
        raise LrurunError(f"{name}: example {int(per_example.argmin())} has no {missing}", hint)
    if output.labelled is not None and array.size and per_example.max() > output.labelled:
        problem = f"example {int(per_example.argmax())} has {per_example.max()} labelled positions"
        raise LrurunError(f"{name}: {problem}, its task declares at most {output.labelled}", hint)
