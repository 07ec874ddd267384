"""What is shown of a log: what a terminal shows in the end of a text that moves the cursor."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.runner import logs
from lrurun.runner.logs import Reader, Screen


def shown(text: str, size: int) -> list[str]:
    """The lines of a text that arrives in parts of this size."""
    screen, lines = Screen(), []
    for at in range(0, len(text), size):
        lines += screen.write(text[at : at + size])
    return lines + screen.end()


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a\n\nb", ["a", "", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("0 %\r50 %\r100 %\n", ["100 %"]),
        ("a long one\rshort", ["shortg one"]),
        ("a long one\rshort\x1b[K", ["short"]),
        ("a long one\r\x1b[2Kshort", ["short"]),
        ("a long one\x1b[3D\x1b[1K", ["        ne"]),
        ("12345\b\b\bab", ["12ab5"]),
        ("\b\ba", ["a"]),
        ("ab\x1b[3Gc\x1b[1Gd", ["dbc"]),
        ("ab\x1b[2Cc", ["ab  c"]),
        ("one\ntwo\nthree\x1b[2A\x1b[1G1\x1b[1Bz\n", ["1ne", "tzo", "three"]),
        ("one\ntwo\x1b[F1\x1b[E2", ["1ne", "2wo"]),
        ("one\ntwo\nthree\x1b[2F\x1b[Jx", ["x"]),
        ("\x1b[9Aone\x1b[9B\n", ["one"]),
        ("\x1b[32mgreen\x1b[0m\rG", ["Green"]),
        ("\x1b]0;a title\x07text\x1b]0;another\x1b\\!\x1b[?25h", ["text!"]),
        ("\x9b32mgreen\x9b0m", ["green"]),
        ("log\n\x1b[2J\x1b[Hpage\x1b[1J", ["log", "page"]),
        ("unfinished\x1b[", ["unfinished"]),
        ("a\tb   ", ["a b"]),
        ("é\r日本\n", ["日本"]),
    ],
)
def test_a_text_is_shown_as_by_a_terminal(text: str, lines: list[str], size: int) -> None:
    """The lines are those of pyte 0.8.2, a terminal in Python, except that a screen that is cleared stays. They are the
    same in whatever parts the text arrives."""
    assert shown(text, size) == lines


def test_a_terminal_that_is_redrawn_for_ever_stays_small() -> None:
    """Lines that the cursor has left behind are given away, and a line without end is given in parts."""
    screen, count = Screen(), 0
    for k in range(300):
        count += len(screen.write("".join(f"{k}\nbar {j}\r\x1b[A" for j in range(50)) + "\n\n"))
        assert len(screen._rows) <= logs.HEIGHT + 100
    assert count + len(screen.end()) == 600
    screen = Screen()
    given = [len(line) for _ in range(30) for line in screen.write("x" * 100_000)] + [
        len(line) for line in screen.end()
    ]
    assert given == [logs.WIDTH] * 3


def test_the_last_lines_are_those_that_a_terminal_shows(tmp_path: Path) -> None:
    """However many characters were written over."""
    path = tmp_path / "log.txt"
    path.write_text("first\nsecond\n" + "\r".join(f"{k} of 100000: {'#' * 20}" for k in range(100_000)) + "\nerror\n")
    assert path.stat().st_size > 3_000_000
    assert logs.tail(path, 3) == ["second", f"99999 of 100000: {'#' * 20}", "error"]
    assert logs.tail(path, 20) == ["first", *logs.tail(path, 3)]
    path.write_text("first\n" + "\r".join(f"{k} of 300000: {'#' * 20}" for k in range(300_000)) + "\nerror\n")
    assert logs.tail(path, 3)[-2:] == [f"299999 of 300000: {'#' * 20}", "error"]
    assert logs.tail(tmp_path / "none", 3) == []


def test_lines_that_may_still_change_wait(tmp_path: Path) -> None:
    """Until nothing has moved above them between two looks, and at the end all are there."""
    path = tmp_path / "log.txt"
    path.write_bytes(b"one\n")
    reader = Reader(path)

    def look(more: bytes) -> list[str]:
        with path.open("ab") as file:
            file.write(more)
        return reader.lines() + reader.settled()

    assert look(b"") == []
    assert look(b"") == ["one"]
    assert look(b"outer 0\ninner 0") == []
    assert look(b"\r\x1b[A") == [], "it was below only while the inner bar was drawn"
    assert look(b"outer 1\n\xe6\x97") == []
    assert look(b"\xa5 1\r\x1b[A") == []
    assert look(b"outer 2\n\n") == []
    assert look(b"end") == ["outer 2", "\u65e5 1er 0"]
    assert reader.lines(last=True) == ["end"]
    assert reader.lines(last=True) == []
