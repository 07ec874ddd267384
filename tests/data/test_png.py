"""PNG images, and files that are read with limits."""

from __future__ import annotations

import io

import numpy as np
import pytest

from lrurun.data.copies import reading
from lrurun.data.copies.png import pixels
from lrurun.errors import LrurunError
from tests.harness import formats

COPY = "the copy is incomplete or damaged: fetch it again"


def refused(call) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("shape", [(5, 5), (5, 5, 3)])
def test_pixels_are_those_of_the_image(shape):
    from PIL import Image

    image = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
    data = formats.png(image)
    mode = "L" if len(shape) == 2 else "RGB"
    np.testing.assert_array_equal(pixels(data, "x", 5, "", mode), image)
    np.testing.assert_array_equal(pixels(data, "x", 5, ""), np.asarray(Image.open(io.BytesIO(data)).convert("L")))


def test_what_is_not_an_image_is_named():
    data = formats.png(np.random.RandomState(0).randint(0, 256, (32, 32)).astype(np.uint8))
    error = refused(lambda: pixels(b"", "imgs/0/sample_172.png", 32, ""))
    assert (error.message, error.hint) == ("imgs/0/sample_172.png: the image is empty (0 bytes)", COPY)
    broken = bytearray(data)
    broken[len(data) // 2] ^= 255
    for content in (
        data[:10],
        data[:20],
        data[:-300],
        data[: len(data) // 2],
        bytes(broken),
        b"GIF89a" + bytes(90),
        b"text",
    ):
        error = refused(lambda content=content: pixels(content, "x.png", 32, ""))
        assert error.message.startswith("x.png: not a PNG image, or a damaged one")
        assert error.hint == COPY


def test_images_of_more_than_8_bits_are_refused():
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.full((2, 2), 40_000, np.uint16)).save(file, "PNG")
    message = refused(lambda: pixels(file.getvalue(), "x", 2, "")).message
    assert message == "x: not a PNG image, or a damaged one: I;16 pixels have more than 8 bits"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert refused(lambda: reading.read_file(tmp_path, 9)).message == f"{tmp_path}: Is a directory"
    path = tmp_path / "nine"
    path.write_bytes(bytes(9))
    assert reading.read_file(path, 9) == bytes(9)
    message = refused(lambda: reading.read_file(path, 8)).message
    assert message == f"{path}: longer than 8 bytes: published files of this kind are shorter"
