"""The console: results go to stdout, messages to stderr.

Rich is imported when something is first printed with colours, or on a terminal. Text from the ledger, from files and
from the command line is data: markup in it has no effect, and escape sequences and control characters are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import textwrap
from functools import cache
from typing import IO, TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console

    from lrurun.errors import LrurunError

PIPE_WIDTH = 200
"""Columns where stdout is not a terminal: many, because nothing may be cut off there."""

# Whole sequences first, so that no part of one remains as text: OSC, DCS and the like up to the terminator (or the end
# of the line if there is none), then CSI, then the short ones.
_SEQUENCES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
# Control characters except tab and newline; the marks that reorder text on the screen; line and paragraph separators.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_HARMLESS = bytes(range(0x20, 0x7F)) + b"\t\n"
# In the URL of a database: the text between the user's name and the last @, and the options that are passwords.
_PASSWORDS = re.compile(r"(\b[a-z][a-z0-9+.-]*:/+[^\s/:@]*:)\S*@|([?&](?:ssl)?passw(?:or)?d=)[^&\s'\"]*", re.IGNORECASE)
_MAX_LINE = 4000
"""Characters of a line of an error."""
_PLAIN = str.maketrans(
    {"±": "+/-", "–": "-", "—": "-", "─": "-", "…": "...", "×": "x", "−": "-", "·": "-"}
    | {"●": "*", "○": "o", "▲": "^", "▼": "v"}
)

_BOUND = re.compile(r" ± | [=<] (?=\d)| (?=%|\(n=)|(?<=\d), (?=[+-]?[\d.]+\])")
"""Blanks at which no line ends."""

_verbosity = 0


def clean(text: str, *, lines: bool = False) -> str:
    """`text` without escape sequences and control characters; newlines and tabs become spaces unless `lines`."""
    if text.isascii() and text.isprintable():
        return text  # the usual case
    # a quick test of the bytes, because tables are megabytes of plain ASCII
    if not text.isascii() or text.encode().translate(None, _HARMLESS):
        text = _CONTROLS.sub("", _SEQUENCES.sub("", text))
    return text if lines else re.sub(r"[\n\t]+", " ", text)


def redact(text: str) -> str:
    """`text` with *** for every password in the URL of a database."""
    return _PASSWORDS.sub(lambda match: f"{match[1]}***@" if match[1] else f"{match[2]}***", text)


def setting(value: object) -> str:
    """The value of a setting as text, as TOML writes it: `true`, not `True`. Strings have no quotes."""
    if value is None:
        return "none"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"  # as it is typed
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list | tuple | dict) else str(value)


def duration(seconds: float) -> str:
    """A duration as `0:07`, `12:30` or `3:04:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def rough_duration(seconds: float) -> str:
    """A duration as `40 s`, `4 min` or `1.6 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def no_progress(what: str, done: int, total: int | None) -> None:
    """Shows nothing of a long step: the default where its progress may be shown."""


def set_verbosity(level: int) -> None:
    """Sets how much is printed to stderr: 0 is usual, each -v adds one, each -q subtracts one."""
    global _verbosity
    _verbosity = level


def verbosity() -> int:
    """The number given to `set_verbosity`."""
    return _verbosity


def out() -> Console:
    """The console of results, on stdout."""
    return _console("stdout", *_settings(sys.stdout))


def err() -> Console:
    """The console of messages, on stderr."""
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


def is_ascii() -> bool:
    """Whether stdout lacks the signs that tables have."""
    return not can_show("".join(map(chr, _PLAIN)))


def plain(text: str) -> str:
    """`text` with ASCII in place of the signs that tables and sentences have."""
    return text.translate(_PLAIN)


def width() -> int:
    """Columns for a result on stdout: as many as the terminal has, else `PIPE_WIDTH`."""
    return out().width if _is_tty(sys.stdout) else PIPE_WIDTH


def has_color() -> bool:
    """Whether a result on stdout may be coloured."""
    return _color(_is_tty(sys.stdout))


def write(text: str, *, styled: bool = False) -> None:
    """Print a finished result on stdout, with a newline at its end. A closed pipe ends the program quietly.

    Escape sequences and control characters are removed, unless the text is `styled`: drawn by Rich from clean text.
    """
    if not styled:
        text = clean(text, lines=True)
    if not text.endswith("\n"):
        text += "\n"
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = plain(text).encode(encoding, "replace").decode(encoding)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _end_quietly()
    except OSError as error:
        from lrurun.errors import LrurunError

        _discard(sys.stdout)
        raise LrurunError(f"the result could not be written to stdout: {error.strerror}") from error


def paragraph(text: str) -> None:
    """Print sentences on stdout. On a terminal, lines end between words."""
    write("\n".join(wrapped(clean(text), width())) if is_screen() else text)


def wrapped(text: str, columns: int, *, label: str = "", indent: int = 0) -> list[str]:
    """Lines of at most `columns` that end between words, never inside of "92.67 ± 0.19 (n=3)" or "[+1.3, +2.9]".

    Args:
        label: begins the first line.
        indent: blanks at the beginning of the others.
    """
    bound = _BOUND.sub(lambda match: match[0].replace(" ", "\xa0"), text)
    wrapper = textwrap.TextWrapper(max(columns, 16), initial_indent=label, subsequent_indent=" " * indent)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return [line.replace("\xa0", " ") for line in wrapper.wrap(bound)] or [label.rstrip()]


def say(text: str, *, level: int = 0) -> None:
    """Print a message on stderr, if the verbosity is at least `level`."""
    if _verbosity >= level:
        _message("", "", text)


def warn(text: str) -> None:
    """Print a warning on stderr, unless -qq is given."""
    if _verbosity >= -1:
        _message("warning: ", "yellow", text)


def fail(error: LrurunError) -> None:
    """Print an error: one line that says what is wrong, and one that says what to do next."""
    _message("error: ", "bold red", _line(error.message))
    if error.hint:
        _message("hint: ", "bold", _line(error.hint))


def trace(text: str) -> None:
    """Print a traceback on stderr, for --debug."""
    _message("", "", text.rstrip())


def _line(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _MAX_LINE else f"{text[: _MAX_LINE - 3]}..."


def finish() -> None:
    """Flush stdout at the end of the program; a closed pipe is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _end_quietly()


def _message(label: str, style: str, text: str) -> None:
    text = redact(clean(text, lines=True))
    is_tty, has_color, _ = _settings(sys.stderr)
    if not is_tty and not has_color:
        _message_to_file(f"{label}{text}".expandtabs())
        return
    from rich.text import Text

    console = err()
    if _is_tty(sys.stderr) and not re.search(r"\n|lrurun ", text):
        text = "\n".join(wrapped(text, console.width, label=label))[len(label) :]
    try:
        # The terminal breaks other long lines: copied commands stay in one piece.
        console.print(Text.assemble((label, style), text), soft_wrap=True)
    except OSError:
        mute()


def _message_to_file(text: str) -> None:
    """Prints a message where there is nothing to style, without Rich, whose import is a tenth of a quick command."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        mute()


def mute() -> None:
    """Discard all further messages, because the terminal was closed. The program continues."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            _discard(sys.stderr)


def _is_tty(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False  # a closed stream


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
        """A console whose reader may close the pipe."""

        def on_broken_pipe(self) -> None:
            if self.stderr:
                _discard(sys.stderr)
                return
            _end_quietly()

    # Rich would guess these from the environment, and would take FORCE_COLOR for a terminal, a notebook for stdout.
    return Quiet(
        stderr=name == "stderr",
        force_terminal=tty,
        force_interactive=tty and not dumb,
        force_jupyter=False,
        color_system=("auto" if tty and not dumb else "standard") if color else None,
        no_color=not color,
        width=None if tty else PIPE_WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )


def _discard(stream: IO[str]) -> None:
    """Send the rest of `stream` to /dev/null, so that Python does not report the closed pipe once more at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, stream.fileno())
    finally:
        os.close(devnull)


def _end_quietly() -> NoReturn:
    _discard(sys.stdout)
    raise SystemExit(0)
