"""The contract of tasks: what each declares, which settings it takes, and what lists of runs know without it."""

from __future__ import annotations

from unittest import mock

import pytest
from msgspec import structs

from lrurun.data import tasks
from lrurun.data.task import SPLITS, Output
from lrurun.decoding import convert
from lrurun.errors import UsageError
from lrurun.judging.scores import form_of

each_task = pytest.mark.parametrize("name", tasks.TASKS)


def declared(name):
    """A paragraph about a task with its published settings."""
    task = tasks.TASKS[name]
    options = task.options()
    spec = task.spec(options)
    settings = {field.name: getattr(options, field.name) for field in structs.fields(options)}
    lines = [
        f"{name} {task.version}: {spec.kind}, {spec.features:,} x {spec.length:,}, {spec.predicted}",
        "sizes " + ", ".join(f"{split} {size:,}" for split, size in task.sizes(options).items()),
        "settings " + ", ".join(f"{key} = {value}" for key, value in settings.items() if value is not None),
    ]
    scaled = [
        f"{part} {value[:3] if isinstance(value, tuple) else value}"
        for part, value in (("scale", round(spec.scale, 9)), ("mean", spec.mean), ("std", spec.std))
        if value not in (1.0, ())
    ]
    if scaled:
        lines.append(", ".join(scaled))
    if spec.output != Output() or spec.pair:
        changed = [field.name for field in structs.fields(Output) if getattr(spec.output, field.name) != field.default]
        lines.append(", ".join(["pair"] * spec.pair + [f"{one} {getattr(spec.output, one)}" for one in changed]))
    lines.append("metrics " + ", ".join(f"{metric.name} {metric.chance}" for metric in task.metrics))
    lines.append(f"protocols {', '.join(task.protocols)}; further tests {list(task.further_tests(options))}")
    lines += [f"{remote.url} {remote.bytes} {(remote.sha256 or '')[:12]}" for remote in task.remotes]
    return "\n".join(f"  {line}" if number else line for number, line in enumerate(lines))


def test_what_the_tasks_declare(golden):
    golden("tasks.txt", "\n".join(declared(name) for name in tasks._BUILT_IN) + "\n")


@each_task
def test_every_task_declares_what_a_run_needs(name):
    task = tasks.TASKS[name]
    options = task.options()
    assert (task.name, task.spec(options).name, task.spec(options).classes) == (name, name, task.classes)
    assert set(task.sizes(options)) == set(SPLITS)
    assert task.version
    assert task.title
    assert task.wanted or task.offline(options)
    assert not task.remotes or task.wanted
    # lists of runs know its metrics without it
    known = tasks.METRICS[tasks._BUILT_IN[name].selected_on]
    assert form_of(known) == form_of(task.metric)
    assert {metric.name for metric in task.metrics} <= set(tasks.METRICS)
    assert tasks._BUILT_IN[name].chance in (None, task.metric.chance)
    with mock.patch.object(type(tasks.TASKS), "is_imported", return_value=False):
        quickly = tasks.metric_with_chance(name)
    assert (quickly.name, quickly.chance, quickly.near_chance, quickly.higher_is_better) == (
        *(task.metric.name, task.metric.chance, task.metric.near_chance, task.metric.higher_is_better),
    )
    has_bound = task.metric.variance(0.5, 100) is not None
    assert tasks.test_items(name) == (task.sizes(options)["test"] if has_bound else None)


def test_fewer_examples_than_published_are_taken_and_no_more_unless_generated():
    few = {"train": 100, "test": 999_999}
    for name, sizes in {
        "sCIFAR": [100, 5_000, 10_000],
        "Text": [100, 2_500, 25_000],
        "Pathfinder": [100, 20_000, 999_999],
        "ListOps": [100, 2_000, 999_999],
    }.items():
        task = tasks.TASKS[name]
        assert list(task.sizes(task.options(**few)).values()) == sizes
    speech = tasks.TASKS["SpeechCommands"]
    sizes = speech.sizes(speech.options(words=10))  # 34,975, of which 70 and 15 % are rounded down
    assert sizes == {"train": int(0.7 * 34_975), "validation": int(0.5 * (34_975 - int(0.7 * 34_975))), "test": 5_247}
    segmented = tasks.TASKS["PathfinderSegmentation"]
    assert [segmented.spec(segmented.options(size=size)).length for size in (256, 512)] == [65_536, 262_144]
    subtrees = tasks.TASKS["ListOpsSubTrees"]
    assert subtrees.spec(subtrees.options(min_length=20, max_length=100)).length == 100


def test_an_unknown_task_gets_the_nearest_one():
    with pytest.raises(UsageError) as caught:
        tasks.get("digits")
    assert caught.value.message == "unknown task 'digits'"
    assert caught.value.hint == f"did you mean 'sDigits'? it is one of {len(tasks.TASKS)} tasks; {tasks.OF_PLUG_IN}"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("sCIFAR", {"pool": 3}, "pool: expected one of 1, 2, 4, found 3"),
        ("sCIFAR", {"split": "random"}, "split: expected one of lra, s4, found"),
        ("sCIFAR", {"gray": "lra"}, "gray: unknown name"),
        ("sCIFAR", {"train": 0}, "train: expected a whole number >= 1, found 0"),
        ("npDigits", {"length": 7}, "length: expected a whole number >= 8, found 7"),
        ("npDigits", {"noise": -1}, "noise: expected a whole number >= 0, found -1"),
        ("npDigits", {"noise": 256}, "noise: expected a whole number <= 255, found 256"),
        ("npCIFAR", {"seed": -1}, "seed: expected a whole number >= 0, found -1"),
        ("ListOps", {"min_length": 1999}, "no length is between min_length = 1999 and max_length = 2000"),
        ("ListOps", {"max_args": 1}, "max_args: expected a whole number >= 2, found 1"),
        ("ListOps", {"max_length": 40000}, "max_length: expected a whole number <= 32767, found 40000"),
        ("ListOpsSubTrees", {"min_length": 8179}, "no length is between"),
        ("Pathfinder", {"size": 33}, "size: "),
        ("Pathfinder", {"size": 48}, "size: expected one of 22, 32, 64, 128, 256, found 48"),
        ("Pathfinder", {"contour_length": 12}, "contour_length: expected one of 6, 9, 14 at size 32, found 12"),
        (
            "Pathfinder",
            {"size": 22, "contour_length": 14, "quirks": False},
            "expected one of 4, 6 at size 22, found 14",
        ),
        ("Pathfinder", {"size": 22, "contour_length": 6}, "images of size 22 are our own"),
        ("Pathfinder", {"split": "tfds"}, "split: expected one of lra, s4, found"),
        ("PathfinderSegmentation", {"size": 64}, "size: expected one of 32, 128, 256, 512, found 64"),
        ("PathfinderSegmentation", {"size": 32}, "quirks: images of size 32 are"),
        ("Text", {"max_length": 1}, "max_length: expected a whole number >= 2, found 1"),
        ("SpeechCommands", {"words": 11}, "words: expected one of 10, 35, found 11"),
        ("PG19", {"length": 65537}, "length: expected a whole number <= 65536, found 65537"),
        ("Shift", {"length": 3}, "length: expected a whole number >= 4, found 3"),
        ("Shift", {"length": 4, "shifts": 5}, "shifts must not be larger than length, found 5 and 4"),
        ("Select", {"selected": 0}, "selected: expected a whole number >= 1, found 0"),
        ("MIPS", {"size": 1}, "size: expected a whole number >= 2, found 1"),
        ("CumSum", {"shifts": 2}, "shifts: unknown name"),
        ("Copy", {"length": 12, "tokens": 13}, "tokens must be at most length = 12, found 13"),
        (
            "MQAR",
            {"length": 14, "pairs": 4, "vocabulary": 16},
            "must be even and at least 4 pairs = 16, found 14",
        ),
        (
            "MQAR",
            {"length": 25, "pairs": 4, "vocabulary": 16},
            "must be even and at least 4 pairs = 16, found 25",
        ),
        ("MQAR", {"length": 24, "pairs": 4, "vocabulary": 8}, "vocabulary must be even and above 2 pairs = 8, found 8"),
        (
            "Parity",
            {"min_length": 3, "max_length": 30, "longest": 30},
            "min_length, max_length and longest must ascend, found 3, 30, 30",
        ),
    ],
)
def test_settings_that_are_none_are_refused(name, settings, message):
    with pytest.raises(UsageError) as caught:
        convert(settings, tasks.get(name).options, "data")
    assert message in caught.value.message
    assert caught.value.message.startswith("data")
