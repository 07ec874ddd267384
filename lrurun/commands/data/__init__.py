"""`lrurun data`: prepare, check, describe or remove the data of a task."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from msgspec import UNSET, Struct, UnsetType, structs

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, ProfileName, Task
from lrurun.commands._shared.rules import examples
from lrurun.commands.data.importing import import_
from lrurun.commands.data.removing import remove
from lrurun.errors import LrurunError, Stopped

if TYPE_CHECKING:
    import numpy as np

    from lrurun.data.task import Data, Spec, Split
    from lrurun.data.task import Task as TaskClass
    from lrurun.data.task_data import Manifest
    from lrurun.judging.scores import ScoreForm
    from lrurun.paths import Places

EXAMPLES = 4
"""How many examples of the training split `check` shows."""
BINS = 8
"""The number of bars in the histogram of lengths."""

app = typer.Typer(
    help="Prepare, check, describe or remove the data of a task.", no_args_is_help=True, rich_markup_mode=None
)


class SplitFacts(Struct, frozen=True, kw_only=True):
    """The contents of a split; lengths only where sequences differ in length."""

    count: int
    classes: list[int]
    """Labels of each class; none for real values."""
    labels: float = 1
    """Labels of an example, on average."""
    values: tuple[float, float] | UnsetType = UNSET
    """Mean and standard deviation of labels that are real values."""
    groups: int | UnsetType = UNSET
    """The number of groups to which the items of a test split belong, where they are named."""
    lengths: tuple[int, int, int] | UnsetType = UNSET
    """Shortest, median, longest."""
    histogram: list[tuple[int, int, int]] | UnsetType = UNSET
    """(from, to, examples) of lengths."""


class DataCheck(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun data check`."""

    task: str
    folder: str
    sha256: str
    source: str
    kind: str
    published: str | None
    """"yes", "no" or "unverified": whether a copy or download is the published one."""
    splits: dict[str, SplitFacts]
    vocabulary: Sequence[str]
    baselines: Mapping[str, float]
    notes: Sequence[str]


class Download(Struct, frozen=True):
    """A file that preparation downloads."""

    url: str
    file: str
    bytes: int | None
    sha256: str | None


class DataInfo(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun data info`."""

    task: str
    title: str
    version: str
    classes: int
    length: int
    options: Mapping[str, Any]
    sizes: Mapping[str, int]
    folder: str
    prepared: Any
    """The manifest, a `lrurun.data.task_data.Manifest`; None if the data are not prepared."""
    takes: str | None
    """The copies that --from reads."""
    downloads: list[Download]
    otherwise: str | None


class Requested(Struct, frozen=True):
    """The data that the arguments of a command name."""

    task: Any  # Task and Options: naming their module here would import numpy for every --help
    options: Any
    data_name: str


def _requested(name: str, profile: str | None) -> Requested:
    from lrurun.config import planning

    return Requested(*planning.data_of(name, profile))


@app.command()
@examples(
    "lrurun data prepare sCIFAR",
    "lrurun data prepare ListOps --from lra_release.gz",
)
def prepare(
    context: typer.Context,
    task: Task,
    profile: ProfileName = None,
    from_: Annotated[
        Optional[Path],
        typer.Option("--from", metavar="PATH", help="A copy of the published data; see data info."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Prepare them again if they are there, as after an edit of your task.")
    ] = False,
) -> int:
    """Prepare the data of a task.

    They come from a copy, a download or a generator.
    """
    from lrurun.data import task_data
    from lrurun.data.task import SPLITS
    from lrurun.report.live.views import PreparationView
    from lrurun.runner.preparation import check_data_folder, prepare_data
    from lrurun.runner.signals import Signals

    places: Places = context.obj.places
    requested = _requested(task, profile)
    where = places.data / requested.data_name
    check_data_folder(places, requested, force=force)
    signals = Signals()
    try:
        with signals.recorded(), PreparationView() as view:
            made = prepare_data(places.data, requested, signals, view, from_path=from_, force=force)
    except Stopped as stopped:
        console.say(f"stopped by {stopped}; no data were prepared; the same command prepares them")
        return stopped.exit_code
    manifest = task_data.manifest(requested.task, requested.options, where)
    assert manifest is not None
    if not made and from_ is not None:
        console.warn(f"{where} is prepared already, from {manifest.source}: {from_} was not read; --force reads it")
    for note in manifest.notes:
        console.warn(note)
    counts = ", ".join(f"{split} {getattr(manifest.counts, split):,}" for split in SPLITS)
    console.paragraph(f"{where}: {counts}; {_from(manifest)}")
    return 0


@app.command()
@examples("lrurun data check sCIFAR", "lrurun data check sCIFAR --image examples.png")
def check(
    context: typer.Context,
    task: Task,
    profile: ProfileName = None,
    image: Annotated[
        Optional[Path], typer.Option("--image", metavar="FILE", help="Draw the examples into a PNG file.")
    ] = None,
    json: Json = False,
) -> int:
    """Verify prepared data, and show what they contain.

    Shows counts, classes, lengths and examples. The exit code is 1 if the data have been changed.
    """
    from lrurun.data import task_data
    from lrurun.data.task import SPLITS
    from lrurun.judging.scores import form_of

    places: Places = context.obj.places
    requested = _requested(task, profile)
    where = places.data / requested.data_name
    manifest = task_data.manifest(requested.task, requested.options, where)
    if manifest is None:
        raise task_data.missing(requested.task, where, _again(context, task, profile))
    data = task_data.load(requested.task, requested.options, where)
    # a task of tokens may have no names for them
    vocabulary = manifest.vocabulary or [str(token) for token in range(data.spec.features)]
    examples = _examples(requested.task, data, vocabulary)
    if image is not None:
        _draw(image, requested.task.name, examples)
    splits = {split: getattr(data, split) for split in SPLITS}
    splits |= {f"test@{name}": split for name, split in data.further_tests.items()}
    document = DataCheck(
        task=requested.task.name,
        folder=str(where.absolute()),
        sha256=data.sha256,
        source=data.source,
        kind=data.kind,
        published=data.published,
        splits={name: _facts(data.spec, split) for name, split in splits.items()},
        vocabulary=manifest.vocabulary,
        baselines=data.baselines,
        notes=manifest.notes,
    )
    if json:
        output.write_json(document)
        return 0
    _print_check(where, document, form_of(requested.task.metric))
    if few := _few_items(requested.task, data.test):
        console.warn(few)
    for label, example in examples:
        if isinstance(example, str):
            text, most = console.clean(example), 300 if data.spec.kind == "tokens" else 80
            console.paragraph(f"label {label}: {text if len(text) <= most else text[: most - 3] + '...'}")
    if pictures := len(_pictures(examples)):
        drawn = f"wrote {pictures} examples to {image}"
        console.say(drawn if image else "examples are pictures: --image FILE.png draws them")
    return 0


def _again(context: typer.Context, task: str, profile: str | None) -> str:
    """The arguments of another command about the same data, as they were given."""
    options = context.find_root().params
    words = [task, *(["--profile", profile] if profile else [])]
    for file in options.get("load") or ():
        words += ["--load", file]
    return shlex.join([*words, *(["--data-dir", options["data_dir"]] if options.get("data_dir") else [])])


def _print_check(where: Path, document: DataCheck, form: ScoreForm) -> None:
    console.paragraph(f"{where}: every array has the digest in the manifest")
    console.write(document.sha256)
    console.paragraph(f"source: {_from(document)}")
    for note in document.notes:
        console.warn(note)
    if document.vocabulary:
        console.write(f"vocabulary: {len(document.vocabulary)} tokens")
    table.show(table.Table(columns=tuple(_split_columns(document.splits)), rows=tuple(document.splits.items())))
    if histogram := document.splits["train"].histogram:
        console.write("lengths in train:")
        console.write(_bars(histogram))
    if document.baselines:
        console.paragraph(f"scores of naive predictors on test: {_naive(document.baselines, form)}")


def _split_columns(splits: Mapping[str, SplitFacts]) -> Iterator[table.Column]:
    """The columns of a table whose rows are the splits and their facts."""

    def column(name: str, cell: Callable[[SplitFacts], str], **more: Any) -> table.Column:
        return table.Column(name=name, cell=lambda row: cell(row[1]), **more)

    yield table.Column(name="split", cell=lambda row: row[0], right=False)
    yield column("examples", lambda facts: f"{facts.count:,}")
    if any(facts.groups for facts in splits.values()):
        yield column("groups", lambda facts: f"{facts.groups:,}" if facts.groups else "")
    if any(facts.labels != 1 for facts in splits.values()):
        yield column("labels an example", lambda facts: f"{facts.labels:.3g}", priority=3)
    if splits["train"].values:
        yield column("labels: mean ± deviation", lambda facts: "{:.3g} ± {:.3g}".format(*facts.values or ()))
    else:
        ranges = column("share of a class", lambda facts: _share_range(facts.classes))
        shares = column("share of each class, %", lambda facts: _shares(facts.classes), priority=2, narrower=ranges)
        yield shares if len(splits["train"].classes) <= 12 else ranges
    name = "lengths: shortest / median / longest"
    narrow = structs.replace(column("lengths", _lengths, right=False), full_name=name)  # with the same cells
    yield column(name, _lengths, right=False, priority=1, narrower=narrow)


@app.command()
@examples(
    "lrurun data info npDigits",
    "lrurun data info sCIFAR --json",
)
def info(context: typer.Context, task: Task, profile: ProfileName = None, json: Json = False) -> int:
    """Describe the data of a task: sizes, folder and source.

    Only the manifest is read.
    """
    from lrurun.data import task_data
    from lrurun.decoding import canonical
    from lrurun.judging.scores import form_of

    places: Places = context.obj.places
    requested = _requested(task, profile)
    named: TaskClass = requested.task
    where = places.data / requested.data_name
    manifest = task_data.manifest(named, requested.options, where)
    spec = named.spec(requested.options, manifest.vocabulary if manifest else ())
    offline = named.offline(requested.options)
    document = DataInfo(
        task=named.name,
        title=named.title,
        version=named.version,
        classes=named.classes,
        length=spec.length,
        options=structs.asdict(requested.options),
        sizes=named.sizes(requested.options),
        folder=str(where.absolute()),
        prepared=manifest,
        takes=named.wanted,
        downloads=[Download(r.url, r.name, r.bytes, r.sha256) for r in named.remotes],
        otherwise=offline.text if offline else None,
    )
    if json:
        output.write_json(document)
        return 0
    changed = canonical(requested.options)
    baselines = manifest.baselines if manifest else {}
    defaults = "as published" if named.remotes or named.wanted else "the defaults of the task"
    no_copy = "nothing: the arrays were imported" if named.restore else ""
    facts = {
        "task": f"{named.name}: {named.title}",
        "examples": ", ".join(f"{split} {count:,}" for split, count in document.sizes.items()),
        "sequences": f"up to {spec.length:,} {'step' if spec.length == 1 else 'steps'}, {spec.predicted}",
        "settings": ", ".join(f"{key} = {console.setting(value)}" for key, value in changed.items()) or defaults,
        "folder": document.folder,
        "prepared": f"from {_from(manifest)}" if manifest else "not yet",
        "naive scores": _naive(baselines, form_of(named.metric)) if baselines else "",
        "--from takes": named.wanted or no_copy,
    }
    downloads = [("download", r.url + (f", {r.bytes:,} bytes" if r.bytes else "")) for r in named.remotes]
    otherwise = [("otherwise", offline.text)] if offline and not manifest else []
    table.show_facts([*((name, text) for name, text in facts.items() if text), *downloads, *otherwise])
    return 0


app.command("import")(import_)
app.command()(remove)


def _from(data: Manifest | DataCheck) -> str:
    """The source of prepared data, and whether a copy or download is the published one."""
    from lrurun.config.instance import data_phrase

    known = f" ({data_phrase({'kind': data.kind, 'published': data.published})})" if data.published else ""
    return console.clean(f"{data.source}{known}")


def _naive(baselines: Mapping[str, float], form: ScoreForm) -> str:
    return console.clean(", ".join(f"{name} {form.labelled(form.short(score))}" for name, score in baselines.items()))


def _facts(spec: Spec, split: Split) -> SplitFacts:
    import numpy as np

    from lrurun.data import arrays

    count = len(split.labels)
    if spec.output.loss == "squared-error":
        labels = np.asarray(split.labels)
        real = labels[~np.isnan(labels)]
        number = real.size / spec.classes / max(1, count)
        facts = SplitFacts(count=count, classes=[], labels=number, values=(float(real.mean()), float(real.std())))
    else:
        classes = arrays.count_classes(split.labels, spec.classes).tolist()
        facts = SplitFacts(count=count, classes=classes, labels=sum(classes) / max(1, count))
    if split.groups is not None:
        facts = structs.replace(facts, groups=len(np.unique(split.groups)))
    if split.lengths is None:
        return facts
    lengths = np.asarray(split.lengths).ravel()
    heights, edges = np.histogram(lengths, bins=BINS, range=(0, spec.length))
    return structs.replace(
        facts,
        lengths=(int(lengths.min()), int(np.median(lengths)), int(lengths.max())),
        histogram=[(int(low), int(high), int(n)) for low, high, n in zip(edges[:-1], edges[1:], heights, strict=True)],
    )


def _few_items(task: TaskClass, test: Split) -> str:
    """A sentence on a small test split of imported arrays; "" otherwise."""
    import numpy as np

    from lrurun.data.own_array_task import OwnArrayTask

    if not isinstance(task, OwnArrayTask):
        return ""
    return task.few_items(None if test.groups is None else np.unique(test.groups, return_counts=True)[1].tolist())


Examples = Sequence[tuple[str, "str | np.ndarray"]]
"""(labels, text or picture)."""


def _examples(task: TaskClass, data: Data, vocabulary: Sequence[str]) -> Examples:
    chosen = range(min(EXAMPLES, len(data.train.labels)))
    return [(_label(data.train.labels[k]), task.example(data.spec, data.train, k, vocabulary)) for k in chosen]


def _label(label: np.ndarray) -> str:
    """The label of an example, or its first labels; - where there is none."""
    import numpy as np

    flat = np.ravel(label)
    most = 8 if flat.dtype.kind == "f" else 32
    missing = np.isnan(flat) if flat.dtype.kind == "f" else flat == -1
    pairs = zip(flat[:most].tolist(), missing[:most].tolist(), strict=True)
    words = ["-" if is_missing else f"{number:.3g}" for number, is_missing in pairs]
    return " ".join(words) + (" ..." if flat.size > most else "")


def _pictures(examples: Examples) -> list[np.ndarray]:
    return [example for _, example in examples if not isinstance(example, str)]


def _draw(image: Path, task: str, examples: Examples) -> None:
    pictures = _pictures(examples)
    if not pictures:
        raise LrurunError(f"--image {image}: {task} has no pictures", "its examples are text: see above")
    output.write_file(image, _png(_sheet(pictures)), "--image")


def _shares(counts: list[int]) -> str:
    return " ".join(f"{100 * count / max(1, sum(counts)):.1f}" for count in counts)


def _share_range(counts: list[int]) -> str:
    total = max(1, sum(counts))
    return f"{min(counts) / total:.1%} to {max(counts) / total:.1%}"


def _lengths(facts: SplitFacts) -> str:
    return " / ".join(f"{n:,}" for n in facts.lengths) if facts.lengths else "all full"


def _bars(histogram: Sequence[tuple[int, int, int]]) -> str:
    most = max(n for *_, n in histogram) or 1
    return "\n".join(f"{low:>7,} to {high:>7,}  {n:>9,}  {'#' * round(40 * n / most)}" for low, high, n in histogram)


def _sheet(pictures: list[np.ndarray]) -> np.ndarray:
    """The pictures side by side, (height, width) or (height, width, 3), small ones enlarged."""
    import numpy as np

    factor = max(1, 128 // pictures[0].shape[0])
    large = [np.kron(p, np.ones((factor, factor, *(1,) * (p.ndim - 2)), np.uint8)) for p in pictures]
    gap = np.full((large[0].shape[0], 8, *large[0].shape[2:]), 128, np.uint8)
    return np.concatenate([part for picture in large for part in (picture, gap)][:-1], axis=1)


def _png(picture: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG")
    return file.getvalue()
