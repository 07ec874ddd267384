"""The console: stdout and stderr, colours and live views, hostile text, closed pipes."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lrurun import console
from lrurun.errors import LrurunError, UsageError


@pytest.fixture(autouse=True)
def neutral(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    yield
    console.set_verbosity(0)


class Terminal:
    """A terminal that replaces stdout and stderr once a test attaches it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader, self.writer = os.openpty()
        self.stream = open(self.writer, "w", encoding="utf-8")
        self.monkeypatch = monkeypatch

    def attach(self) -> None:
        # Within the test: pytest sets its own streams after the fixtures have run.
        self.monkeypatch.setattr(sys, "stdout", self.stream)
        self.monkeypatch.setattr(sys, "stderr", self.stream)

    def sent(self) -> str:
        """Everything that was written so far."""
        self.stream.flush()
        os.write(self.writer, b"\0")
        text = b""
        while not text.endswith(b"\0"):
            text += os.read(self.reader, 4096)
        return text[:-1].decode().replace("\r\n", "\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal(monkeypatch)
    yield made
    monkeypatch.undo()
    made.stream.close()
    os.close(made.reader)


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (89.4, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")]
)
def test_a_rough_duration_has_one_unit(seconds: float, text: str) -> None:
    assert console.rough_duration(seconds) == text


def test_results_go_to_stdout_and_messages_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.write("a result")
    console.say("a message")
    console.warn("careful")
    assert capsys.readouterr() == ("a result\n", "a message\nwarning: careful\n")


def test_verbosity_is_a_signed_number(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for level in (-2, -1, 0, 1):
        console.set_verbosity(level)
        assert console.verbosity() == level
        console.say("usual")
        console.say("more", level=1)
        console.warn("odd")
        console.fail(LrurunError("broken"))
        said[level] = capsys.readouterr().err.split("\n")[:-1]
    assert said == {
        -2: ["error: broken"],
        -1: ["warning: odd", "error: broken"],
        0: ["usual", "warning: odd", "error: broken"],
        1: ["usual", "more", "warning: odd", "error: broken"],
    }


def test_an_error_is_one_or_two_lines_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    console.fail(
        UsageError("no such\ntask [bold]x[/bold] :smile: \x1b[31mred\x1b[0m" + "y" * 300, hint="try\x07\nthis")
    )
    expected = "error: no such task [bold]x[/bold] :smile: red" + "y" * 300 + "\nhint: try this\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ± ü 漢", "plain ± ü 漢"),
        ("\x1b[2J\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\after", "after"),
        ("\x1b]never closed", ""),
        ("\x1bcreset", "reset"),
        ("half\x1b", "half"),
        ("bell\x07 back\b null\0 delete\x7f return\rx", "bell back null delete returnx"),
        ("abc\u202etxt.exe\u2066x\u2069", "abctxt.exex"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("lone \ud800 surrogate", "lone  surrogate"),
    ],
)
def test_clean_removes_control_sequences(text: str, expected: str) -> None:
    assert console.clean(text) == expected


def test_clean_may_keep_lines() -> None:
    assert console.clean("two\nlines\x1b[1m", lines=True) == "two\nlines"


def test_a_terminal_gets_colour_and_may_have_a_live_view(terminal: Terminal) -> None:
    terminal.attach()
    assert console.is_terminal()
    assert console.has_color()
    console.fail(LrurunError("broken"))
    assert terminal.sent() == "\x1b[1;31merror: \x1b[0mbroken\n"


@pytest.mark.parametrize(("name", "value", "live"), [("NO_COLOR", "1", True), ("TERM", "dumb", False)])
def test_no_color_and_dumb_terminals_get_no_escape_sequence(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str, live: bool
) -> None:
    monkeypatch.setenv(name, value)
    terminal.attach()
    assert console.is_terminal() is live
    assert console.err().is_interactive is live
    assert not console.has_color()
    console.fail(LrurunError("broken"))
    assert terminal.sent() == "error: broken\n"


def test_force_color_colours_a_pipe_but_draws_no_live_view(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert console.has_color()
    assert not console.is_terminal()
    assert not console.err().is_terminal
    assert not console.err().is_interactive
    console.fail(LrurunError("broken"))
    assert capsys.readouterr().err == "\x1b[1;31merror: \x1b[0mbroken\n"
    monkeypatch.setenv("NO_COLOR", "1")
    console.fail(LrurunError("broken"))
    assert capsys.readouterr().err == "error: broken\n"


def test_width_is_the_terminals_and_wide_in_a_pipe(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "61")
    terminal.attach()
    console._console.cache_clear()
    assert console.width() == 61
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert console.width() == console.PIPE_WIDTH == 200
    console._console.cache_clear()


def test_an_ascii_stream_gets_ascii_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    console.write("90.1 ± 0.2 – 漢")
    assert raw.getvalue() == b"90.1 +/- 0.2 - ?\n"


def test_rich_is_imported_only_for_messages_with_colours() -> None:
    code = (
        "import sys; from lrurun import console; from lrurun.errors import UsageError; console.write('x'); "
        "console.say('a\\tb'); console.warn('c' * 300); console.fail(UsageError('d', 'e')); console.finish(); "
        "print('rich' in sys.modules)"
    )
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    texts = []
    for more in ({}, {"FORCE_COLOR": "1"}):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env | more)
        assert done.stdout == f"x\n{bool(more)}\n"
        texts.append(re.sub(r"\x1b\[[0-9;]*m", "", done.stderr))
    assert texts[0] == f"a       b\nwarning: {'c' * 300}\nerror: d\nhint: e\n"
    assert texts[1] == texts[0], "as Rich prints it"


def test_a_closed_stdout_ends_quietly() -> None:
    code = "from lrurun import console\nfor i in range(10**6): console.write('x' * 100)\nprint('never')"
    command = f'"{sys.executable}" -c "$CODE" | head -n 1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "CODE": code}, timeout=60
    )
    assert (done.stdout, done.stderr) == ("x" * 100 + "\n0\n", "")


def test_a_stdout_that_was_never_open_is_an_error() -> None:
    done = subprocess.run(["bash", "-c", f'"{sys.executable}" -m lrurun --version >&-'], capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith("error: stdout is closed")) == (1, True)


def test_a_closed_stderr_does_not_end_the_program() -> None:
    code = "from lrurun import console\nfor i in range(2000): console.say('x' * 100)\nconsole.write('the result')"
    command = f'"{sys.executable}" -c "$CODE" 2> >(head -n 1 > /dev/null); echo "$?"'
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "CODE": code}, timeout=60
    )
    assert (done.stdout, done.stderr) == ("the result\n0\n", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_with_a_reason() -> None:
    code = """if True:
        from lrurun import console
        from lrurun.errors import LrurunError
        try:
            console.write("x")
        except LrurunError as error:
            console.fail(error)
            raise SystemExit(error.exit_code)
    """
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "error: the result could not be written to stdout: No space left on device\n"


def test_text_printed_through_rich_is_data_too(capsys: pytest.CaptureFixture[str]) -> None:
    console.out().print("[bold]x[/bold] :smile: 123")
    assert capsys.readouterr().out == "[bold]x[/bold] :smile: 123\n"


def test_sentences_wrap_at_words_on_a_terminal_only(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "Learning rates (from the rates in [tune.grid]): " + ", ".join(f"a-rung {k}" for k in range(30))
    console.paragraph(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
    terminal.attach()
    console.paragraph(sentence)
    lines = terminal.sent().splitlines()
    assert " ".join(lines) == sentence
    assert 1 < max(map(len, lines)) <= console.width()
    assert len(lines) > 1


def test_messages_wrap_at_words_and_commands_stay_in_one_piece(terminal: Terminal) -> None:
    terminal.attach()
    sentence = "stopping: " + "runs are saved " * 20
    console.warn(sentence)
    lines = terminal.sent().splitlines()
    assert len(lines) > 1
    assert all(line.endswith(("runs", "are", "saved")) for line in lines)
    command = "the same command continues: lrurun ladder " + "--set optim.lr=0.1 " * 20 + "end"
    console.say(command)
    assert terminal.sent() == f"{command}\n"
