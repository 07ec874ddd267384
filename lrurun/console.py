"""The one console: results to stdout, talk to stderr, quiet when piped.

Rich is imported when something is first printed through it. Text from the ledger, from files and from the command line
is data: no markup is read in it, and escape sequences and control characters are taken out.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from functools import cache
from typing import IO, TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType

    from lrurun.errors import LrurunError

PIPE_WIDTH = 200
"""Columns where nobody looks at a terminal: wide, because nothing may be cut off there."""

# Whole sequences first, so that no half of one stays behind as text: OSC, DCS and their kin up to the terminator
# (or the end of the line, if someone left it out), then CSI, then the short ones.
_SEQUENCES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
# Controls but tab and newline; the marks that reorder text on the screen; line and paragraph separators.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_HARMLESS = bytes(range(0x20, 0x7F)) + b"\t\n"
# In the URL of a database: what stands between the user's name and the last @, and the options that are passwords.
_PASSWORDS = re.compile(r"(\b[a-z][a-z0-9+.-]*:/+[^\s/:@]*:)\S*@|([?&](?:ssl)?passw(?:or)?d=)[^&\s'\"]*", re.IGNORECASE)
_MOST = 4000
"""Characters of a line of an error."""
_PLAIN = str.maketrans({"±": "+/-", "–": "-", "—": "-", "─": "-", "…": "...", "×": "x", "−": "-"})

_WHOLE = ("id", "rung", "step")
"""Headers of columns whose cells are never folded."""

_verbosity = 0


def clean(text: str, *, lines: bool = False) -> str:
    """`text` without escape sequences and control characters; newlines and tabs become spaces unless `lines`."""
    if text.isascii() and text.isprintable():
        return text  # most of it is
    # megabytes of plain ASCII in lines are told by a look at the bytes
    if not text.isascii() or text.encode().translate(None, _HARMLESS):
        text = _CONTROLS.sub("", _SEQUENCES.sub("", text))
    return text if lines else re.sub(r"[\n\t]+", " ", text)


def redact(text: str) -> str:
    """`text` with *** for every password in the URL of a database."""
    return _PASSWORDS.sub(lambda found: f"{found[1]}***@" if found[1] else f"{found[2]}***", text)


def set_verbosity(level: int) -> None:
    """How much talk: 0 as usual, one more for each -v, one less for each -q."""
    global _verbosity
    _verbosity = level


def verbosity() -> int:
    """The signed number of `set_verbosity`."""
    return _verbosity


def out() -> Console:
    """The console of results, on stdout."""
    return _console("stdout", *_settings(sys.stdout))


def err() -> Console:
    """The console of talk, on stderr."""
    return _console("stderr", *_settings(sys.stderr))


def is_terminal() -> bool:
    """Whether a live view may be drawn: stderr is a terminal that can move its cursor, whatever FORCE_COLOR says."""
    return _is_tty(sys.stderr) and not _is_dumb()


def is_screen() -> bool:
    """Whether results go to a terminal."""
    return _is_tty(sys.stdout)


def can_show(text: str) -> bool:
    """Whether the encoding of stdout has these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width() -> int:
    """Columns for a result on stdout: the terminal's, and plenty where there is none."""
    return out().width if _is_tty(sys.stdout) else PIPE_WIDTH


def has_color() -> bool:
    """Whether a result on stdout may be coloured."""
    return _color(_is_tty(sys.stdout))


def write(text: str, *, styled: bool = False) -> None:
    """Print a finished result on stdout, with a newline at its end. A closed pipe ends the program quietly.

    What is not text, as in `clean`, is taken out of it, unless it is `styled`: drawn by Rich from clean text.
    """
    if sys.stdout is None:
        # Closed by whoever started the program.
        return
    if not styled:
        text = clean(text, lines=True)
    if not text.endswith("\n"):
        text += "\n"
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _end_quietly()
    except OSError as error:
        from lrurun.errors import LrurunError

        _discard(sys.stdout)
        raise LrurunError(f"the result could not be written to stdout: {error.strerror}") from error


def show(picture: RenderableType) -> None:
    """Print something of Rich's on stdout."""
    out().print(picture)


def table(title: str | None, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text under headers on stdout. A terminal folds long cells; a pipe gets every line whole.

    A terminal too narrow for that gets each row as lines, a cell a line.
    """
    if not _is_tty(sys.stdout):
        write(_aligned(title, headers, rows))
        return
    if _least_width(headers, rows) > out().width:
        write(_stacked(title, headers, rows))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    picture = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    picture.title = Text(clean(title)) if title else None
    for header in headers:
        picture.add_column(Text(header), overflow="fold", no_wrap=header in _WHOLE)
    for row in rows:
        picture.add_row(*[Text(clean(cell)) for cell in row])
    show(picture)


def _least_width(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Columns below which a table is no longer read: some cells must stay whole, the others keep eight characters."""
    longest = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    kept = [length if header in _WHOLE else min(length, 8) for header, length in zip(headers, longest, strict=True)]
    return sum(kept) + 3 * len(kept)


def _stacked(title: str | None, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    name = max(map(len, headers))
    blocks = [
        "\n".join(
            f"{header.ljust(name)}  {clean(cell)}".rstrip() for header, cell in zip(headers, row, strict=True) if cell
        )
        for row in rows
    ]
    return "\n\n".join(([clean(title)] if title else []) + blocks) + "\n"


def _aligned(title: str | None, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = "".join(map("".join, rows))
    # thousands of rows are looked at together: most are clean
    cells = [headers, *(rows if clean(text) is text else ([clean(cell) for cell in row] for row in rows))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    line = "  ".join(f"{{:{width}}}" for width in widths).format
    lines = [line(*row).rstrip() for row in cells]
    return "\n".join(([clean(title)] if title else []) + lines) + "\n"


def say(text: str, *, level: int = 0) -> None:
    """One line of talk on stderr, for those who asked for this much of it."""
    if _verbosity >= level:
        _talk("", "", text)


def warn(text: str) -> None:
    """A warning on stderr, which one -q leaves in place."""
    if _verbosity >= -1:
        _talk("warning: ", "yellow", text)


def fail(error: LrurunError) -> None:
    """The one shape of an error: a line that says what is wrong, and a line that says what to do next."""
    _talk("error: ", "bold red", _line(error.message))
    if error.hint:
        _talk("hint: ", "bold", _line(error.hint))


def trace(text: str) -> None:
    """A traceback on stderr, for --debug."""
    _talk("", "", text.rstrip())


def _line(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def finish() -> None:
    """Flush stdout at the end of the program; a reader that has gone away is no error."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _end_quietly()


def _talk(label: str, style: str, text: str) -> None:
    from rich.text import Text

    console = err()
    try:
        # Lines are left to the terminal to break: what is copied or searched for stays in one piece.
        console.print(Text.assemble((label, style), redact(clean(text, lines=True))), soft_wrap=True)
    except OSError:
        mute()


def mute() -> None:
    """Talk goes nowhere from now on: the terminal is gone, and the work goes on."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            _discard(sys.stderr)


def _is_tty(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        # A closed stream.
        return False


def _is_dumb() -> bool:
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def _color(tty: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (tty and not _is_dumb())


def _settings(stream: IO[str] | None) -> tuple[bool, bool, bool]:
    tty = _is_tty(stream)
    return tty, _color(tty), _is_dumb()


@cache
def _console(name: str, tty: bool, color: bool, dumb: bool) -> Console:
    from rich.console import Console

    class Quiet(Console):
        """A console whose reader may go away."""

        def on_broken_pipe(self) -> None:
            if self.stderr:
                # Nobody listens to the talk any more; the work goes on.
                _discard(sys.stderr)
                return
            _end_quietly()

    # Everything that Rich would guess from the environment is said here: it takes FORCE_COLOR for a terminal.
    return Quiet(
        stderr=name == "stderr",
        force_terminal=tty,
        force_interactive=tty and not dumb,
        color_system=("auto" if tty and not dumb else "standard") if color else None,
        no_color=not color,
        width=None if tty else PIPE_WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )


def _discard(stream: IO[str]) -> None:
    """Send what is left in `stream` nowhere, or Python reports the closed pipe once more as it ends."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, stream.fileno())
    finally:
        os.close(devnull)


def _end_quietly() -> NoReturn:
    _discard(sys.stdout)
    raise SystemExit(0)
