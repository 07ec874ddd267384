"""The commands about data: prepare, check, info. No jax here."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from lrurun import console
from lrurun import plan as planning
from lrurun.config import canonical
from lrurun.errors import LrurunError
from lrurun.paths import Places
from lrurun.tasks import folder
from lrurun.tasks.base import SPLITS, Data, Options, Spec, Split, Task

EXAMPLES = 4
"""How many examples of the training split `check` shows."""
BINS = 8


class Meant(Struct, frozen=True):
    """The data that the words of a command mean."""

    task: Task
    options: Options
    data_name: str


def _meant(name: str, profile: str | None) -> Meant:
    return Meant(*planning.data_of(name, profile))


def prepare(places: Places, name: str, *, profile: str | None, given: Path | None) -> int:
    """Makes the data of a task, or says that they are there."""
    from lrurun.supervise import Signals, Stopped, check_data_folder, prepare_data

    meant = _meant(name, profile)
    where = places.data / meant.data_name
    check_data_folder(places, meant)
    signals = Signals()
    try:
        with signals.noted():
            made = prepare_data(places.data, meant, signals, given=given)
    except Stopped as stopped:
        console.say(f"stopped by {stopped}; nothing half-written was left in {places.data}")
        return stopped.exit_code
    table = folder.manifest(meant.task, meant.options, where) or {}
    if not made and given is not None:
        console.warn(f"{where} is prepared already, from {table['source']}: {given} was not read")
    for note in table.get("notes", ()):
        console.warn(note)
    counts = ", ".join(f"{split} {table['counts'][split]:,}" for split in SPLITS)
    console.write(f"{where}: {counts}; {console.clean(table['source'])}")
    return 0


def info(places: Places, name: str, *, profile: str | None, json: bool) -> int:
    """What a task's data are, where they would be, and where they come from; nothing is read but the manifest."""
    meant = _meant(name, profile)
    task, where = meant.task, places.data / meant.data_name
    table = folder.manifest(task, meant.options, where)
    spec = task.spec(meant.options, (table or {}).get("vocabulary", ()))
    remotes = [{"url": r.url, "file": r.name, "bytes": r.bytes, "sha256": r.sha256} for r in task.remotes]
    offline = task.offline(meant.options)
    if json:
        document = {
            "schema_version": 1,
            "task": task.name,
            "title": task.title,
            "version": task.version,
            "classes": task.classes,
            "length": spec.length,
            "options": {**_options(meant.options)},
            "sizes": task.sizes(meant.options),
            "folder": str(where.absolute()),
            "prepared": table,
            "takes": task.wanted,
            "downloads": remotes,
            "otherwise": offline.text if offline else None,
        }
        console.write(jsonlib.dumps(document, indent=2))
        return 0
    changed = canonical(meant.options)
    rows = [
        ["task", f"{task.name}: {task.title}"],
        ["examples", ", ".join(f"{split} {count:,}" for split, count in task.sizes(meant.options).items())],
        ["sequences", f"up to {spec.length:,} steps, {task.classes} classes"],
        ["settings", ", ".join(f"{key} = {value}" for key, value in changed.items()) or "as published"],
        ["folder", str(where.absolute())],
        ["prepared", f"from {table['source']}" if table else "not yet"],
        ["--from takes", task.wanted or "nothing: no copy is needed"],
        *(["download", r.url + (f", {r.bytes:,} bytes" if r.bytes else "")] for r in task.remotes),
        *([["otherwise", offline.text]] if offline else []),
    ]
    console.table(None, ["", ""], rows)
    return 0


def check(places: Places, name: str, *, profile: str | None, json: bool, image: Path | None) -> int:
    """Verifies prepared data, and shows what a person should look at: counts, classes, lengths, examples."""
    meant = _meant(name, profile)
    where = places.data / meant.data_name
    data = folder.load(meant.task, meant.options, where)
    table = folder.manifest(meant.task, meant.options, where) or {}
    splits = {split: _facts(data.spec, getattr(data, split)) for split in SPLITS}
    # a task of tokens may have no words for them
    words = table.get("vocabulary") or [str(token) for token in range(data.spec.features)]
    shown = _examples(meant.task, data, words)
    pictures = [example for _, example in shown if not isinstance(example, str)]
    if image is not None:
        if not pictures:
            raise LrurunError(f"--image {image}: {meant.task.name} has no pictures", "its examples are text: see above")
        _write_png(image, _sheet(pictures))
    if json:
        document = {
            "schema_version": 1,
            "task": meant.task.name,
            "folder": str(where.absolute()),
            "sha256": data.sha256,
            "source": data.source,
            "kind": data.kind,
            "splits": splits,
            "vocabulary": list(table.get("vocabulary", ())),
            "baselines": data.baselines,
            "notes": table.get("notes", []),
        }
        console.write(jsonlib.dumps(document, indent=2))
        return 0
    console.write(f"{where}: every array has the bytes that its manifest names\n{data.sha256}")
    console.write(f"source: {console.clean(data.source)}")
    for note in table.get("notes", ()):
        console.warn(note)
    if table.get("vocabulary"):
        console.write(f"vocabulary: {len(table['vocabulary'])} tokens")
    rows = [
        [split, f"{facts['count']:,}", _shares(facts["classes"]), _lengths(facts)] for split, facts in splits.items()
    ]
    console.table(None, ["split", "examples", "share of each class, %", "lengths: least / median / most"], rows)
    if "histogram" in splits["train"]:
        console.write("lengths in train:")
        console.write(_bars(splits["train"]["histogram"]))
    if data.baselines:
        told = ", ".join(f"{k} {v * 100:.1f} %" for k, v in data.baselines.items())
        console.write(console.clean(f"naive predictors on test: {told}"))
    for label, example in shown:
        if isinstance(example, str):
            text = console.clean(example)
            console.write(f"label {label}: {text if len(text) <= 300 else text[:297] + '...'}")
    if pictures:
        said = (
            f"wrote {len(pictures)} examples to {image}"
            if image
            else "examples are pictures: --image FILE.png draws them"
        )
        console.say(said)
    return 0


def _options(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__struct_fields__}


def _facts(spec: Spec, split: Split) -> dict[str, Any]:
    counts = np.bincount(np.asarray(split.labels, np.int64), minlength=spec.classes)
    facts: dict[str, Any] = {"count": len(split.labels), "classes": counts.tolist()}
    if split.lengths is not None:
        lengths = np.asarray(split.lengths).ravel()
        heights, edges = np.histogram(lengths, bins=BINS, range=(0, spec.length))
        facts["lengths"] = [int(lengths.min()), int(np.median(lengths)), int(lengths.max())]
        facts["histogram"] = [
            [int(low), int(high), int(n)] for low, high, n in zip(edges[:-1], edges[1:], heights, strict=True)
        ]
    return facts


def _examples(task: Task, data: Data, vocabulary: Any) -> list[tuple[int, str | np.ndarray]]:
    chosen = range(min(EXAMPLES, len(data.train.labels)))
    return [(int(data.train.labels[k]), task.example(data.spec, data.train, k, vocabulary)) for k in chosen]


def _shares(counts: list[int]) -> str:
    total = max(1, sum(counts))
    shares = [f"{100 * count / total:.1f}" for count in counts]
    return " ".join(shares) if len(shares) <= 12 else f"{min(counts) / total:.1%} to {max(counts) / total:.1%}"


def _lengths(facts: dict[str, Any]) -> str:
    return " / ".join(f"{n:,}" for n in facts["lengths"]) if "lengths" in facts else "all full"


def _bars(histogram: list[list[int]]) -> str:
    most = max(n for *_, n in histogram) or 1
    return "\n".join(f"{low:>7,} to {high:>7,}  {n:>9,}  {'#' * round(40 * n / most)}" for low, high, n in histogram)


def _sheet(pictures: list[np.ndarray]) -> np.ndarray:
    """The pictures side by side, (height, width) or (height, width, 3), small ones enlarged."""
    factor = max(1, 128 // pictures[0].shape[0])
    large = [np.kron(p, np.ones((factor, factor, *(1,) * (p.ndim - 2)), np.uint8)) for p in pictures]
    gap = np.full((large[0].shape[0], 8, *large[0].shape[2:]), 128, np.uint8)
    return np.concatenate([part for picture in large for part in (picture, gap)][:-1], axis=1)


def _write_png(path: Path, picture: np.ndarray) -> None:
    from PIL import Image

    try:
        Image.fromarray(picture).save(path, format="PNG")
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror or error}", "choose another --image FILE.png") from None
