"""Copies of Pathfinder that are damaged, incomplete or others: each is refused by name."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

from lrurun.data.generated.pathfinder import PathfinderOptions
from tests.harness import formats
from tests.harness.pathfinder_copies import (
    COPY,
    HINT,
    LEVEL,
    ORDERS,
    PIXELS,
    RELEASES,
    prepared,
    refused,
    release,
    same,
    tfds_examples,
    tfrecord,
)


@pytest.fixture
def given(tmp_path):
    """A level of the release, to be harmed."""
    return RELEASES["level"](tmp_path / "given")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"seed": 1}, "seed = 1"),
        ({"quirks": False, "seed": 2}, "quirks = False, seed = 2"),
        ({"contour_length": 9}, "contour_length = 9"),
        ({"train": 17}, "train = 17"),
    ],
)
def test_images_that_no_copy_holds_are_not_taken_from_one(tmp_path, given, options, found):
    error = refused(tmp_path, given, PathfinderOptions(**options))
    assert error.message == f"{given}: a copy holds the published images, not those with {found}"
    assert error.hint == "omit --from: these images are generated"


def test_an_empty_image_is_named_by_name(tmp_path, given):
    path = given / "imgs/10/sample_3.png"
    path.write_bytes(b"")
    error = refused(tmp_path, given)
    assert (error.message, error.hint) == (f"{path}: the image is empty (0 bytes)", COPY)


def test_broken_missing_and_other_images_are_named_by_name(tmp_path, given):
    path = given / "imgs/2/sample_0.png"
    path.write_bytes(path.read_bytes()[:500])
    assert refused(tmp_path, given).message.startswith(f"{path}: not a PNG image, or a damaged one: ")
    path.write_bytes(formats.png(PIXELS[0, :, :31]))
    error = refused(tmp_path / "again", given)
    assert (error.message, error.hint) == (f"{path}: expected 32 x 32 pixels, found 32 x 31", HINT)
    path.unlink()
    assert refused(tmp_path / "and again", given).message == f"{given}: imgs/2/sample_0.png missing"


def array(content: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(content), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"imgs/2 sample_0.png 0 1 1.0\nimgs/2 sample_1.png 1\n", ":2: expected 4 fields or more, found 3"),
        (b"imgs/2 sample_0.png 0 2 1.0\n", ":1: expected a label of 0 or 1, found '2'"),
        (b"imgs/2 sample_0.png 0 1.0 1.0\n", ":1: expected a label of 0 or 1, found '1.0'"),
        (b"imgs/2 \xff\xfe 0 1\n", ": neither text nor a NumPy array: invalid start byte"),
        (array([["imgs/2", "sample_0.png", "0"]]), ":1: expected 4 fields or more, found 3"),
        (array([["imgs/2", "sample_0.png", "0", "x"]]), ":1: expected a label of 0 or 1, found 'x'"),
        (array([[1.0, 2.0]]), ": not an array of texts: found 2 axes of float64"),
        (array([[["a"]]]), ": not an array of texts: found 3 axes of <U1"),
        (array([None, {}]), ": not an array of texts: Object arrays cannot be loaded when allow_pickle=False"),
        (array([["imgs/2", "sample_0.png", "0", "1"]])[:-9], ": not an array of texts: "),
        (array([["imgs/2"]])[:20], ": not an array of texts: "),
    ],
)
def test_lists_that_are_none_are_named_with_file_and_line(tmp_path, given, content, message):
    path = given / "metadata/2.npy"
    path.write_bytes(content)
    error = refused(tmp_path, given)
    assert error.message.startswith(f"{path}{message}")
    assert error.hint == HINT


def test_an_array_of_whole_lines_is_a_list_too(tmp_path, given):
    for path in (given / "metadata").iterdir():
        lines = path.read_text().splitlines()
        path.write_bytes(array(lines if path.stem == "2" else [line.encode() for line in lines]))
    same(prepared(tmp_path / "data/x", given)[0], ORDERS["s4"])


def test_other_numbers_of_images_are_refused(tmp_path, given):
    path = given / "metadata/10.npy"
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    error = refused(tmp_path, given)
    assert (error.message, error.hint) == (f"{given}: expected 20 images, found 19", HINT)
    path.write_text(whole + whole.splitlines()[0])
    error = refused(tmp_path / "again", given)
    assert error.message == f"{given}: imgs/10/sample_0.png is listed 2 times"


def test_an_archive_without_all_images_is_named(tmp_path):
    files = release("lra_release")
    prefix = f"lra_release/pathfinder32/{LEVEL}"
    del files[f"{prefix}/imgs/10/sample_1.png"]
    path = formats.tar(tmp_path / "lra_release.gz", files)
    assert refused(tmp_path, path).message == f"{path}: {prefix}: imgs/10/sample_1.png missing"
    files = {name: content for name, content in files.items() if "imgs/2/" not in name}
    formats.tar(path, files)
    message = refused(tmp_path / "again", path).message
    assert message == f"{path}: {prefix}: imgs/2/sample_0.png and 13 others missing"


def test_an_empty_image_in_an_archive_is_named_by_name(tmp_path):
    member = f"lra_release/pathfinder32/{LEVEL}/imgs/2/sample_5.png"
    path = formats.tar(tmp_path / "lra_release.gz", release("lra_release") | {member: b""})
    assert refused(tmp_path, path).message == f"{path}: {member}: the image is empty (0 bytes)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "hard: expected 20 examples, found 19"),
        (lambda rows: [*rows[:-1], rows[0] | {"label": -1}], "hard: example 19: expected a label of 0 to 1, found -1"),
        (lambda rows: [rows[0] | {"image": b""}, *rows[1:]], "hard: example 0: the image is empty (0 bytes)"),
        (
            lambda rows: [rows[0] | {"image": formats.png(PIXELS[0, :9])}, *rows[1:]],
            "hard: example 0: expected 32 x 32",
        ),
    ],
)
def test_a_tfds_copy_that_is_not_the_release_is_refused(tmp_path, change, message):
    given = tfrecord(tmp_path / "given", change(tfds_examples()))
    assert refused(tmp_path, given).message.startswith(f"{given}: {message}")


def test_a_tfds_copy_without_the_published_level_is_refused(tmp_path):
    given = tfrecord(tmp_path / "given", split="easy")
    error = refused(tmp_path, given)
    assert (error.message, error.hint) == (f"{given}: hard: expected 20 examples, found 0", HINT)


def test_a_cut_off_tfds_copy_is_named(tmp_path):
    given = tfrecord(tmp_path / "given")
    path = given / "pathfinder32-hard.tfrecord-00001-of-00002"
    os.truncate(path, path.stat().st_size - 1)
    assert refused(tmp_path, given).message == f"{path}: truncated in record 9"
