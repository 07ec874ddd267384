"""Readers of copies: archives, folders of TFDS, pickles, PNG images as they are; what is damaged or lies is named."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lrurun
from lrurun.console import no_progress
from lrurun.data.copies import pickles, reader, reading, tfds
from lrurun.data.copies.png import pixels
from lrurun.errors import LrurunError
from tests.harness import formats

DAMAGED = "the copy is incomplete or damaged: fetch it again"


def refused(call, *arguments) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        call(*arguments)
    assert "\n" not in caught.value.message
    return caught.value


# archives

FILES = {"./": b"", "./a.txt": b"first\nsecond\n", "b/": b"", "b/empty": b"", "b/./big.bin": bytes(range(256)) * 300}


def unpacked(path):
    with contextlib.closing(reader.members(path)) as found:  # after an error the file is closed at once
        return [(name, reading.read(file, 1 << 20, name)) for name, file in found]


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_members_are_read_in_order_under_plain_names(tmp_path, mode):
    path = formats.tar(tmp_path / "files.tar", FILES, mode)
    assert unpacked(path) == [("a.txt", FILES["./a.txt"]), ("b/empty", b""), ("b/big.bin", FILES["b/./big.bin"])]
    assert next(list(file) for _, file in reader.members(path)) == [b"first\n", b"second\n"]
    seen = []
    found = [name for name, _ in reader.members(path, lambda *facts: seen.append(facts))]  # nothing read
    assert found == ["a.txt", "b/empty", "b/big.bin"]
    assert {(what, total) for what, _, total in seen} == {("reading files.tar", path.stat().st_size)}
    assert os.listdir(tmp_path) == ["files.tar"]

    def use() -> None:
        for _ in reader.members(path):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):  # an error of the caller passes
        use()


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_truncated_anywhere_is_named(tmp_path, mode):
    random = np.random.RandomState(0)
    path = formats.tar(tmp_path / "files.tar", {f"{number}.bin": random.bytes(3000) for number in range(9)}, mode)
    content = path.read_bytes()
    for cut in (*range(0, 27_000, 2554), 512, 4096, len(content) - 9 if mode == "w:gz" else 32_300):
        path.write_bytes(content[:cut])
        error = refused(unpacked, path)
        assert error.message.removesuffix(", or not a tar archive") == f"{path}: the archive is truncated"
        assert error.hint == DAMAGED
        assert refused(list, reader.members(path)).message == error.message


def header(name, size, kind=tarfile.REGTYPE):
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def flawed(place, byte, change, packed):
    """A gzipped archive of random bytes with another byte."""
    plain = formats.tar(place / "plain", {"random.bin": np.random.RandomState(0).bytes(50_000)}, "w").read_bytes()
    content = bytearray(gzip.compress(plain) if packed else formats.tar(place / "plain", {"x": plain}).read_bytes())
    content[byte] = change(content[byte])
    return bytes(content)


HUGE = "a header of 8,589,934,592 bytes, where 65,536 are allowed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>403 Forbidden</html>", "not a tar archive"),
        (b"x" * 9999, "not a tar archive"),
        (bytes(20) + b"x" * 9999, "not a tar archive"),
        (gzip.compress(b"x" * 9999, mtime=0), "not a tar archive"),
        # a block of a kind that there is not, and a flaw that only the checksum at the end shows
        (lambda place: flawed(place, 10, lambda byte: byte | 6, True), "the archive is damaged: Error -3 "),
        (lambda place: flawed(place, -8, lambda byte: byte ^ 255, False), "the archive is damaged: CRC check failed"),
        (header("x", 1 << 33, tarfile.GNUTYPE_LONGNAME) + bytes(1 << 16), HUGE),
        (header("x", 1 << 33, tarfile.XHDTYPE) + bytes(1 << 16), HUGE),
        (header("x", 1 << 33, tarfile.XGLTYPE) + bytes(1 << 16), HUGE),
        (header("first", 0) + header("second", 10**15) + bytes(2048), "the archive is truncated"),
        (header("first", 0) + header("second", -5000) + bytes(2048), "negative size"),
    ],
)
def test_what_is_not_an_archive_or_a_damaged_one_is_named(tmp_path, content, message):
    path = tmp_path / "files.tar"
    path.write_bytes(content if isinstance(content, bytes) else content(tmp_path))
    error = refused(unpacked, path)
    assert error.message.startswith(f"{path}: ")
    assert message in error.message
    assert refused(unpacked, tmp_path / "nothing").message == f"{tmp_path}/nothing: No such file or directory"


def test_links_are_skipped_and_headers_do_not_pile_up(tmp_path, monkeypatch):
    with tarfile.open(tmp_path / "files.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("a.txt")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        for number in range(50):
            archive.addfile(tarfile.TarInfo(f"{number}"))
    opened, real = [], tarfile.open
    monkeypatch.setattr(reader.tarfile, "open", lambda *a, **b: opened.append(real(*a, **b)) or opened[-1])
    for number, (name, _) in enumerate(reader.members(tmp_path / "files.tar")):
        assert name == f"{number}"
        assert len(opened[0].members) <= 1
    assert (len(opened), number) == (1, 49)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert refused(reading.read_file, tmp_path, 9).message == f"{tmp_path}: Is a directory"
    path = tmp_path / "nine"
    path.write_bytes(bytes(9))
    assert reading.read_file(path, 9) == bytes(9)
    assert refused(reading.read_file, path, 8).message.startswith(f"{path}: longer than 8 bytes: ")


# folders of TFDS

EXAMPLES = [
    {"text": b"", "label": 0},
    {"text": "Ünder a gr\0en tree".encode(), "label": 1},
    {"text": b"x" * 5000, "label": -1},
]
FEATURES = {"text": formats.text_feature(), "label": formats.class_feature(2)}
SHARD = "reviews-train.tfrecord-0000{}-of-00002"


def reviews(folder: Path, version="1.0.0", **more) -> Path:
    """tfrecord files in two shards."""
    splits = {"train": EXAMPLES * 2, "test": EXAMPLES[:1]}
    return formats.tfds_tfrecord(folder, "reviews", version, FEATURES, splits, shards=2, **more)


def read(place, split="train", features=None, name="reviews"):
    return [example for _, example in tfds.find(place, name).read(split, features or {}, no_progress)]


def test_tfrecord_files_are_read_in_order(tmp_path):
    found = tfds.find(reviews(tmp_path), "reviews")
    assert (found.text, found.version) == (f"TFDS reviews 1.0.0, tfrecord, {tmp_path}", "1.0.0")
    assert (found.path, found.counts) == (tmp_path, {"train": 6, "test": 1})
    assert read(tmp_path) == EXAMPLES * 2
    assert read(tmp_path, "test") == EXAMPLES[:1]


@pytest.mark.parametrize("below", ["", "1.0.0", "reviews/1.0.0", "reviews/plain/1.0.0"])
def test_a_tfds_folder_is_found_from_everywhere(tmp_path, below, monkeypatch):
    folder = reviews(tmp_path / below)
    while folder != tmp_path.parent:
        assert tfds.find(folder, "reviews").path == tmp_path / below
        assert tfds.find(folder, "others") is None
        folder = folder.parent
    monkeypatch.chdir(tmp_path / below.partition("/")[0])
    assert tfds.find(Path("."), "reviews").counts["train"] == 6


def test_the_newest_version_is_taken_and_a_configuration_can_be_asked_for(tmp_path):
    for version in ("9.0.0", "10.0.0", "9.1.0", "incomplete.XY_11.0.0"):
        reviews(tmp_path / f"a/reviews/{version}", version.rpartition("_")[2])
    assert tfds.find(tmp_path / "a", "reviews").version == "10.0.0"
    for config in ("bytes", "plain"):
        reviews(tmp_path / f"b/reviews/{config}/1.0.0", configName=config)
    for config in ("bytes", "plain"):
        found = tfds.find(tmp_path / "b", "reviews", config=config)
        assert found.path == tmp_path / f"b/reviews/{config}/1.0.0"
    with pytest.raises(LrurunError, match="another configuration of reviews") as caught:
        tfds.find(tmp_path / "b", "reviews", config="words")
    assert caught.value.hint == "give a folder of reviews/words"


LENGTH = struct.pack("<Q", 1 << 50)


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        *((1, lambda whole, cut=cut: whole[:-cut], "truncated in record 2") for cut in (1, 5, 20, 5000)),
        (0, lambda whole: whole[: struct.unpack("<Q", whole[:8])[0] + 16], "expected 3 records, found 1"),
        (0, lambda whole: whole + whole[: struct.unpack("<Q", whole[:8])[0] + 16], "expected 3 records, found 4"),
        (0, lambda whole: formats.tfrecord([b"\xff" * 30] * 3), "record 0 of train: "),
        (
            0,
            lambda whole: LENGTH + formats._masked(LENGTH) + bytes(100),
            "record 0: 1,125,899,906,842,624 bytes are more than the 16,777,216 allowed",
        ),
        (0, None, "named in dataset_info.json, but missing"),
    ],
)
def test_damaged_tfrecord_files_are_named(tmp_path, number, change, message):
    path = reviews(tmp_path) / SHARD.format(number)
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()
    error = refused(read, tmp_path)
    assert error.message.startswith(f"{path}: {message}")
    assert error.hint == DAMAGED
    assert refused(read, tmp_path, "x").message == f"{tmp_path}: no split 'x' among train, test"


def test_array_record_files_are_read_and_a_truncated_one_is_named(tmp_path):
    import tensorflow_datasets

    features = {"text": tensorflow_datasets.features.Text()}
    random = np.random.RandomState(0)
    examples = [(number, {"text": random.bytes(9000).hex().encode()}) for number in range(40)]
    (path,) = formats.tfds_array_record(tmp_path, "letters", features, {"train": examples}).glob("*array_record*")
    found = [example["text"] for example in read(tmp_path, name="letters")]
    texts = [example["text"] for _, example in examples]
    assert sorted(found) == sorted(texts)
    assert found != texts  # TFDS shuffles
    for share in (0.9, 0.3, 0):
        os.truncate(path, int(share * path.stat().st_size))
        error = refused(read, tmp_path, "train", None, "letters")
        assert error.message.startswith(f"{path}: example 0 of train: ")
        assert error.hint == DAMAGED


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "dataset_info.json",
            lambda text: text.replace("tfrecord", "riegeli"),
            "the data are in riegeli files, whi",
        ),
        ("dataset_info.json", lambda text: text[:50], "dataset_info.json: not a description of a data set: "),
        ("dataset_info.json", lambda text: '{"name": "reviews"}', "Object missing required field `version`"),
        (
            "dataset_info.json",
            lambda text: text.replace("{DATASET}-", "../{DATASET}-"),
            "named in dataset_info.json, but outside of ",
        ),
        # TFDS imports the module of any class that the description of the features names
        (
            "features.json",
            lambda text: text.replace("tensorflow_datasets.core.features.text_feature", "evil_features"),
            "features.json: names 'evil_features.Text', which is not a feature of TFDS",
        ),
        ("features.json", None, ": TFDS cannot read it: "),
    ],
)
def test_descriptions_that_cannot_be_used_are_named_and_run_nothing(tmp_path, monkeypatch, file, change, message):
    formats.tree(tmp_path / "modules", {"evil_features.py": b"raise SystemExit('run')"})
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    path = reviews(tmp_path / "data") / file
    path.write_text(change(path.read_text())) if change else path.unlink()
    assert message in refused(read, tmp_path / "data").message


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"image": bytes}, "train: example 0: expected features image, found "),
        ({"text": 2}, "train: example 0: expected a text of 0 to 1, found bytes"),
        ({"label": 1}, "train: example 1: expected a label of 0 to 0, found 1"),
        ({"label": bytes}, "train: example 0: label: expected bytes, found int"),
    ],
)
def test_examples_have_what_is_asked_for(tmp_path, features, message):
    assert message in refused(read, reviews(tmp_path), "train", features).message


def test_neither_tfds_nor_pillow_is_imported_before_it_is_needed():
    code = (
        "import sys; from lrurun.data.copies import png, reader\n"
        "from lrurun.data.downloaded import images\n"
        "from lrurun.data.synthetic import pathfinder\n"
        "heavy = {'tensorflow_datasets', 'PIL', 'jax', 'grain'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[]\n"


# pickles

TABLE = {"labels": [1, 300, -2, 70_000], "name": "x\xff", "data": np.arange(12, dtype=np.uint8).reshape(3, 4), "one": 7}
OLD = formats.pickle_of_python_2(TABLE)


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert type(found[key]) is type(value)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(found[key], value)
        else:
            assert found[key] == value


def test_pickles_of_both_pythons_are_read():
    wanted = pickle.loads(OLD, encoding="bytes")  # Python's own reader knows them
    same({key.decode(): value for key, value in wanted.items()}, pickles.table(OLD, "x"))
    for protocol in (2, 3, 4):
        same(pickles.table(pickle.dumps(TABLE, protocol), "x"), TABLE)
        same(pickles.table(pickle.dumps(wanted, protocol), "x"), pickles.table(OLD, "x"))
        fortran = TABLE | {"data": np.asfortranarray(TABLE["data"])}
        same(pickles.table(pickle.dumps(fortran, protocol), "x"), TABLE)
    more = {
        "none": None,
        "yes": True,
        "no": False,
        "empty": [],
        "pair": (),
        "texts": ["a"] * 3,
        "nested": [[1], (2, 3)],
    }
    same(pickles.table(pickle.dumps(more, 2), "x"), more)


class Calls:
    """A harmless object whose pickle calls something."""

    done: ClassVar[list[int]] = []

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def note(number):
    Calls.done.append(number)


REFUSED = {
    "a call": (Calls(note, 1), "the name 'tests.data.test_readers.note'"),
    "a command": (Calls(os.getenv, "HOME"), "the name 'os.getenv'"),
    "a call of a builtin": (Calls(eval, "1 + 1"), "the name '"),
    "an import": (Calls(__import__, "this"), "the name '"),
    "a path": (Path("x"), "the name 'pathlib"),
    "a class": (Calls, "the name 'tests.data.test_readers.Calls'"),
    "a set": ({1, 2}, ""),  # a name or an operation, by protocol
    "a complex number": (1j, "the name '"),
    "a real number": (1.5, "the operation BINFLOAT"),
    "a long number": (1 << 80, "the operation LONG1"),
    "a number of NumPy": (np.uint8(3), "the name 'numpy"),
    "a generator of NumPy": (np.random.RandomState(0), "the name 'numpy.random"),
    "an array of real numbers": (np.zeros(3), "numbers of another type than uint8"),
    "an array of objects": (np.array([note, {}], object), "numbers of another type than uint8"),
    "records": (np.zeros(3, [("a", np.uint8)]), "numbers of another type than uint8"),
    "another encoding": (Calls(codecs.encode, "abc", "rot13"), "a call of something else"),
    "a subclass of arrays": (np.zeros(3, np.uint8).view(np.matrix), "the name 'numpy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_data_is_refused_and_not_run(case):
    value, said = REFUSED[case]
    for protocol in (2, 3, 4):
        for content in ({"data": value}, {"labels": [1, [value]]}, [value]):
            error = refused(pickles.table, pickle.dumps(content, protocol), "given/data_batch_1")
            assert error.message.startswith(f"given/data_batch_1: the pickle has {said}")
            assert error.message.endswith("which published files of this kind do not have; nothing was run")
            assert error.hint == DAMAGED
    assert Calls.done == []
    if case == "a call":  # Python's own reader would have run it
        pickle.loads(pickle.dumps(value))
        assert Calls.done == [1]
        Calls.done.clear()


START, END = b"\x80\x02", b"."
ENCODE = b"c_codecs\nencode\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a pickle, or a damaged one"),
        (b"<html>403 Forbidden</html>", "not a pickle, or a damaged one"),
        (START + END, "not a pickle, or a damaged one"),
        (START + b"N" + END, "expected a pickled dictionary, found NoneType"),
        (START + b"}K\x01K\x01s" + END, "expected a pickled dictionary, found dict"),
        (START + b"}U\x01a]s", "not a pickle, or a damaged one"),
        (START + b"u" + END, "not a pickle, or a damaged one"),
        (START + b"h\x07" + END, "not a pickle, or a damaged one"),
        (b"(S'touch owned'\nios\nsystem\n.", "the operation STRING"),
        (START + b"(ios\nsystem\n.", "the operation INST"),
        (START + b"cos\nsystem\n(U\x0btouch ownedtR.", "the name 'os.system'"),
        (START + b"cnumpy\nload\n.", "the name 'numpy.load'"),
        (START + b"c\x1b[31m\nx\n.", "the name '\\x1b[31m.x'"),
        (START + b"]U\x01ab" + END, "a state of something else than an array"),
        (START + b"cnumpy\nndarray\n)\x81" + END, "the operation NEWOBJ"),
        (START + b"\x82\x01" + END, "the operation EXT1"),
        (START + b"U\x01aQ" + END, "the operation BINPERSID"),
        (START + b"cnumpy\nndarray\nN\x85R" + END, "a call of something else"),
        # a file of a few bytes that states a large size, or stands for many bytes
        (START + b"}r\xff\xff\xff\xff(" + b"U\x01a]u" + END, None),
        (START + b"T\xff\xff\xff\x7fabc" + END, "not a pickle, or a damaged one"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00abc" + END, "not a pickle, or a damaged one"),
        (
            START
            + ENCODE
            + b"q\x01X\x10\x27\x00\x00"
            + b"a" * 10_000
            + b"q\x02X\x06\x00\x00\x00latin1q\x03\x86R"
            + b"h\x01h\x02h\x03\x86R" * 100_000
            + END,
            "texts that are longer than itself",
        ),
        (START + b"N" * (1 << 18) + END, "more than 262,144 operations"),
        (START + b"(" * 100_000 + b"t" * 100_000 + END, "expected a pickled dictionary, found tuple"),
        (START + b"]q\x01h\x01a" + END, "expected a pickled dictionary, found list"),
    ],
)
def test_pickles_that_lie_run_nothing_and_take_no_memory(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    tracemalloc.start()
    if said is None:
        assert pickles.table(content, "x") == {"a": []}
    else:
        assert said in refused(pickles.table, content, "x").message
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 5), 12), ((-3, -4), 12), ((b"x" * 1000, 10**6), 12), ((12, *[1] * 9), 12), ((2.0, 6), 12)]
)
def test_arrays_whose_shape_is_not_that_of_their_bytes_are_refused(shape, size):
    class Array:
        def __reduce__(self):
            parts = np.zeros(size, np.uint8).__reduce__()
            return (*parts[:2], (1, shape, np.dtype(np.uint8), False, bytes(size)))

    for protocol in (2, 3, 4):
        message = refused(pickles.table, pickle.dumps({"data": Array()}, protocol), "x").message
        assert message.startswith("x: ")


@given(st.integers(0, len(OLD) - 1), st.binary(max_size=4), st.integers(0, 9))
def test_a_damaged_pickle_is_read_or_refused(place, content, removed):
    changed = OLD[:place] + content + OLD[place + removed :]
    with contextlib.suppress(LrurunError):
        assert isinstance(pickles.table(changed, "x"), dict)


# images


@pytest.mark.parametrize("shape", [(5, 5), (5, 5, 3)])
def test_pixels_are_those_of_the_image(shape):
    from PIL import Image

    image = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
    data = formats.png(image)
    np.testing.assert_array_equal(pixels(data, "x", 5, "", "L" if len(shape) == 2 else "RGB"), image)
    np.testing.assert_array_equal(pixels(data, "x", 5, ""), np.asarray(Image.open(io.BytesIO(data)).convert("L")))


def test_what_is_not_an_image_is_named():
    from PIL import Image

    data = formats.png(np.random.RandomState(0).randint(0, 256, (32, 32)).astype(np.uint8))
    broken, deep = bytearray(data), io.BytesIO()
    broken[len(data) // 2] ^= 255
    Image.fromarray(np.full((32, 32), 40_000, np.uint16)).save(deep, "PNG")
    for content, message in (
        (b"", "the image is empty (0 bytes)"),
        *((part, "not a PNG image, or a damaged one") for part in (data[:10], data[:20], data[:-300], bytes(broken))),
        (b"GIF89a" + bytes(90), "not a PNG image, or a damaged one"),
        (deep.getvalue(), "not a PNG image, or a damaged one: I;16 pixels have more than 8 bits"),
    ):
        error = refused(pixels, content, "x.png", 32, "")
        assert error.message.startswith(f"x.png: {message}")
        assert error.hint == DAMAGED
