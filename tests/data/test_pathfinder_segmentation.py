"""PathfinderSegmentation: masks against the geometry of dashes and discs, and what is stored of them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from sklearn.metrics import f1_score

from lrurun.__main__ import run
from lrurun.data import TASKS, store
from lrurun.data.generated.generators.pathfinder import Images, draw, generate, segmented
from lrurun.data.generated.generators.pathfinder.tables import _disc, _lines, _reduce
from lrurun.decoding import convert
from lrurun.errors import UsageError
from tests.data.test_pathfinder_generator import joined, walks
from tests.harness.commands import folder as folder

TASK = TASKS["PathfinderSegmentation"]
SMALL = {"size": 32, "quirks": False, "train": 60, "validation": 10, "test": 30, "seed": 3}
COUNTS = {32: 400, 128: 100, 256: 30, 512: 8}
DIGESTS = {32: "790e39ee81202743", 128: "5013df67188cf057", 256: "f3b5c3d45fcb17db", 512: "6c9daaddb5dba322"}


@cache
def sample(size: int) -> Images:
    return draw(1, 0, COUNTS[size], segmented(size, quirks=size > 32))


def paths(r: Images, i: int, size: int) -> list[tuple[frozenset[int], bool]]:
    """Sets of dashes that may be the snake with the first disc, and whether it ends at the second one.

    It is found by a walk from the first disc, not from what the generator says about snakes, classes and labels.
    """
    p = segmented(size, quirks=size > 32)
    tails, heads = (ends[i].reshape(-1, 2).astype(float) for ends in (r.tails, r.heads))
    begin, end = r.markers[i]
    firsts = np.flatnonzero((tails == begin).all(axis=1))
    found = [path for first in firsts for path in walks(tails, heads, r.angles[i].reshape(-1), first, p, r.margins[i])]
    return [(frozenset(path), bool((heads[path[-1]] == end).all())) for path in found]


def distances(points: np.ndarray, r: Images, i: int) -> np.ndarray:
    """(dashes, n): of points (n, 2) from the line between the ends of each dash."""
    tails, heads = (ends[i].reshape(-1, 1, 2).astype(float) for ends in (r.tails, r.heads))
    along = heads - tails
    part = ((points - tails) * along).sum(-1) / (along**2).sum(-1)
    return np.hypot(*np.moveaxis(tails + np.clip(part, 0, 1)[..., None] * along - points, -1, 0))


@pytest.mark.slow
@pytest.mark.parametrize("size", [32, 128, 256, 512])
def test_masks_agree_with_dashes_and_discs(size):
    r, p = sample(size), segmented(size, quirks=size > 32)
    reach = p.thickness / 2 + (3.5 if p.quirks else 1.2)  # ink ends there, with its ripples
    reach += 1.0 if size == 512 else 0.0  # corners of a thick dash are farther from its line
    doubtful = 0
    for i in range(COUNTS[size]):
        found = set(paths(r, i, size))
        if len(found) != 1:  # a dash of the other snake happens to fit
            doubtful += 1
            continue
        [(marked, connected)] = found
        mask = r.masks[i]
        assert (2 in mask) == connected == bool(r.labels[i])
        # there is a label in the middle of each dash, 2 only on the snake between the discs
        own = np.isin(np.arange(2 * p.contour_length), list(marked))
        middle = (r.tails[i].reshape(-1, 2) + r.heads[i].reshape(-1, 2)) / 2.0
        row, column = np.floor(middle + 0.5).astype(int).T
        there = ndimage.maximum_filter(mask, 2)[row, column]
        assert (there[own] == 1 + connected).all()
        alone = distances(middle[~own], r, i)[own].min(axis=0) > reach + 2
        assert (there[~own] >= 1).all()
        assert (there[~own][alone] == 1).all()
        # and none far from dashes, or without ink
        assert (distances(np.argwhere(mask > 0), r, i).min(axis=0) < reach).all()
        if connected:
            assert (distances(np.argwhere(mask == 2), r, i)[own].min(axis=0) < reach).all()
        assert (r.images[i][mask > 0] > 0).all()
    assert doubtful <= 0.02 * COUNTS[size]


def test_half_of_the_images_have_a_snake_between_two_discs():
    has = np.concatenate([(sample(size).masks == 2).any(axis=(1, 2)) for size in (32, 128)])
    assert abs(has.mean() - 0.5) < 4 * 0.5 / len(has) ** 0.5


@pytest.mark.parametrize("size", [32, 128])
def test_each_distractor_has_a_disc(size):
    """Discs alone are white: dashes have nine tenths of their ink, or less."""
    r, p = sample(size), segmented(size, quirks=size > 32)
    blobs = np.array([ndimage.label(image > 240, np.ones((3, 3)))[1] for image in r.images])
    discs = 2 + r.distractors
    assert (blobs <= discs).all()
    assert blobs.mean() > 0.9 * discs.mean()  # discs overlap at times
    assert r.distractors.mean() > 0.85 * p.distractors
    # a pixel on a disc alone has class 0
    alone = 0
    for i in range(20):
        at = np.argwhere(r.images[i] > 240)
        at = at[distances(at, r, i).min(axis=0) > 6]
        assert not r.masks[i][tuple(at.T)].any()
        alone += len(at)
    assert alone > 20


def test_the_share_of_each_class_is_that_of_the_published_program():
    """At 256 x 256 pixels 97.2, 1.9 and 1.0 %, counted over ten images."""
    shares = np.bincount(sample(256).masks.ravel(), minlength=3) / sample(256).masks.size
    np.testing.assert_allclose(shares, [0.972, 0.019, 0.010], atol=0.005)


@pytest.mark.parametrize("size", [32, 128, 256, pytest.param(512, marks=pytest.mark.slow)])
def test_bits_of_this_version(size):
    """They depend on how Pillow draws lines and reduces pictures, too."""
    images = draw(0, 3, 4, segmented(size, quirks=size > 32))
    assert hashlib.sha256(images.images.tobytes() + images.masks.tobytes()).hexdigest()[:16] == DIGESTS[size]


@pytest.mark.parametrize("fine", [2, 3])
def test_discs_are_those_of_the_published_program(fine):
    """A disc in the middle of a window that is drawn larger and reduced as a whole, in levels of gray as here."""
    size, radius = 41, 9.0
    down, right = np.ogrid[-20 * fine : (size - 20) * fine, -20 * fine : (size - 20) * fine]
    large = np.where(down**2 + right**2 <= (radius * fine) ** 2, 255, 0).astype(np.uint8)
    wanted = np.asarray(Image.fromarray(large).resize((size, size), Image.Resampling.LANCZOS)).astype(float)
    stamp = _disc(radius, fine)[0].astype(float)
    reach = len(stamp) // 2
    window = wanted[20 - reach : 21 + reach, 20 - reach : 21 + reach]
    np.testing.assert_allclose(stamp, window, atol=2)


@pytest.mark.parametrize("size", [128, 256, 512])
def test_dashes_are_as_long_and_thick_as_published(size):
    """L = 5, 8, 22 and T = 1.5, 2, 6; a dash begins and ends within a pixel of the ends of its line."""
    length, thickness = {128: (5, 1.5), 256: (8, 2), 512: (22, 6)}[size]
    p = segmented(size)
    ink = _reduce(_lines(p, p.margins[0], np.radians(np.arange(0, 360, 15))), p.fine) / 255
    np.testing.assert_allclose(ink.sum(axis=(1, 2)), length * thickness, atol=1.6 * thickness + 2)
    middle = len(ink[0]) // 2
    assert np.argwhere(ink[0].max(axis=0) > 0.5).ravel().tolist() == list(range(middle, middle + length + 1))


def test_what_is_stored(tmp_path):
    options = convert(SMALL, TASK.options, "data")
    store.prepare(TASK, options, tmp_path / "x")
    data = store.load(TASK, options, tmp_path / "x")
    made = joined(generate(100, 3, options.parameters()))
    for split, rows in (("test", slice(30)), ("validation", slice(30, 40)), ("train", slice(40, 100))):
        stored = getattr(data, split)
        np.testing.assert_array_equal(stored.inputs, made.images[rows].reshape(-1, 1024))
        np.testing.assert_array_equal(stored.labels, made.masks[rows].reshape(-1, 1024))
    constant = f1_score(data.test.labels.ravel(), np.zeros(data.test.labels.size), average="macro", zero_division=0)
    assert data.baselines == {"majority class": pytest.approx(constant)}
    assert 0.31 < constant < 1 / 3
    assert [metric.name for metric in data.metrics] == ["f1", "balanced_accuracy", "accuracy"]


def test_what_the_task_declares():
    spec = TASK.spec(TASK.options())
    assert (spec.length, spec.classes, spec.output.at, spec.output.balanced) == (16_384, 3, "positions", True)
    black, white = ((level * spec.scale - spec.mean[0]) / spec.std[0] for level in (0, 255))
    assert (black, white) == (-1, 1)
    assert TASK.sizes(TASK.options()) == {"train": 96_000, "validation": 2_000, "test": 2_000}
    assert [TASK.spec(TASK.options(size=size)).length for size in (256, 512)] == [65_536, 262_144]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"size": 64}, "size: expected one of 32, 128, 256, 512, found 64"),
        ({"size": 32}, "quirks: images of size 32 are"),
    ],
)
def test_settings_that_are_none_are_refused(table, message):
    with pytest.raises(UsageError, match=message):
        convert(table, TASK.options, "data")


def test_check_draws_each_mask_beside_its_image(folder):
    words = ["PathfinderSegmentation", "--profile", "smoke", "--data-dir", "d"]
    assert run(["data", "prepare", *words]) == 0
    assert run(["data", "check", *words, "--image", "x.png"]) == 0
    with Image.open("x.png") as file:
        sheet = np.asarray(file)
    stored = Path("d/PathfinderSegmentation-smoke")
    inputs, labels = (np.load(stored / f"train-{part}.npy") for part in ("inputs", "labels"))
    for k in range(4):
        first = k * (4 * 66 + 8)  # enlarged four times, 32 + 2 + 32 pixels
        picture = sheet[::4, first : first + 4 * 66 : 4]
        np.testing.assert_array_equal(picture[:, :32], inputs[k].reshape(32, 32))
        np.testing.assert_array_equal(picture[:, 34:], labels[k].reshape(32, 32) * 127)
