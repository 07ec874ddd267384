"""sSource: the next byte of the source code of Python's standard library, real text that every machine has."""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.data.arrays import Writer
from lrurun.data.next_token import ORDER, ChunkOptions, NextByte, bits_per_byte
from lrurun.data.task import SPLITS, Progress, Source, limited
from lrurun.errors import LrurunError

MODULES = """
_pydecimal _pyio argparse ast asyncio/base_events bdb calendar cmd code codecs collections/__init__
concurrent/futures/process configparser contextlib copy csv dataclasses difflib dis doctest email/_header_value_parser
email/message enum filecmp fileinput fnmatch fractions ftplib functools getopt gettext glob graphlib gzip hashlib
heapq hmac http/client http/cookiejar http/server imaplib inspect ipaddress json/decoder json/encoder linecache locale
logging/__init__ logging/handlers lzma mailbox mimetypes modulefinder netrc numbers operator optparse os pdb pickle
pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats py_compile pyclbr pydoc queue quopri
random reprlib rlcompleter runpy sched secrets selectors shelve shlex shutil site smtplib socket socketserver ssl stat
statistics string subprocess symtable tabnanny tarfile tempfile textwrap threading timeit tokenize trace traceback
tracemalloc turtle types typing unittest/case unittest/mock urllib/parse urllib/request uuid warnings wave weakref
webbrowser xml/dom/minidom xml/etree/ElementTree xmlrpc/client xmlrpc/server zipapp zipimport
""".split()
"""Modules of Python 3.11 to 3.13; number 5, 15, ... is in the validation split, number 10, 20, ... in the test
split."""
SIZES = {"train": 4_200_000, "validation": 384_000, "test": 384_000}
"""Bytes of each split that are used, from its beginning: as many as all these releases have."""


class SourceOptions(ChunkOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the bytes are cut."""

    length: Annotated[int, Meta(ge=2, le=65_536)] = 1024


class SourceCode(NextByte):
    """Whole modules belong to one split; validation is the fifth of every ten."""

    name = "sSource"
    title = "the next byte of Python's standard library"
    version = "1"
    """1: the modules above, as the Python that prepares them has them; each release of Python has other bytes.

    The digest of the text is in the manifest and not here, because plans are made without prepared data, and prepared
    data outlive the Python that made them: runs record the digest of the arrays, and unequal ones are never averaged.
    """
    options = SourceOptions

    def sizes(self, options: SourceOptions) -> dict[str, int]:
        return limited(options, {split: size // (options.length + 1) for split, size in SIZES.items()})

    def offline(self, options: SourceOptions) -> Source:
        def fill(writer: Writer, progress: Progress) -> None:
            chunks = _chunks(self, options)
            for split, rows in chunks.items():
                writer.save(split, "inputs", rows[:, :-1])
                writer.save(split, "labels", rows[:, 1:].astype(np.int16))
            for name, order in (("unigram model", 1), (f"{ORDER}-gram model", ORDER)):
                progress(f"counting for the {name}", 0, None)
                writer.baselines[name] = bits_per_byte(chunks["train"], chunks["test"], order)

        python = platform.python_version()
        digest = hashlib.sha256(b"".join(_text(split) for split in SPLITS)).hexdigest()
        return Source(
            kind="generated",
            text=f"the standard library of Python {python}, sha256 {digest[:12]}",
            fill=fill,
            generator={"name": "stdlib", "python": python, "sha256": digest, "modules": len(MODULES)},
        )


def stdlib() -> Path:
    """The folder of the standard library of the Python that runs."""
    return Path(sysconfig.get_path("stdlib"))


def _text(split: str) -> bytes:
    """The modules of a split, one after the other; no byte is 0.

    Raises:
        LrurunError: a module is missing, as in a Python without its sources.
    """
    folder, parts = stdlib(), []
    for number, name in enumerate(MODULES, start=1):
        if {5: "validation", 0: "test"}.get(number % 10, "train") == split:
            try:
                parts.append((folder / f"{name}.py").read_bytes().replace(b"\0", b""))
            except OSError as error:
                raise LrurunError(
                    f"sSource: the source of module {name} cannot be read: {folder / name}.py: {error.strerror}",
                    "prepare the data with a Python that has its standard library as files",
                ) from None
    return b"".join(parts)


def _chunks(task: SourceCode, options: SourceOptions) -> dict[str, np.ndarray]:
    """(examples, length + 1) uint8 per split: the inputs and, one later, the labels."""
    width, chunks = options.length + 1, {}
    for split, count in task.sizes(options).items():
        text = _text(split)
        if len(text) < count * width:
            raise LrurunError(
                f"sSource: {split} needs {count * width:,} bytes, the modules of this Python have {len(text):,}",
                f"use fewer examples: {split} = {len(text) // width} in [data] of a recipe of your own",
            )
        chunks[split] = np.frombuffer(text, np.uint8)[: count * width].reshape(count, width)
    return chunks
