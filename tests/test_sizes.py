"""Files and functions are short enough to be read at once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lrurun import studies

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("lrurun", "tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def long_functions(source: str) -> list[str]:
    """Names of functions of more than 60 lines without a comment `# long: reason` at or above their first line."""
    lines = source.splitlines()
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            assert node.end_lineno is not None
            head = lines[max(first - 2, 0) : node.body[0].lineno - 1]
            if node.end_lineno - node.lineno >= 60 and not any("# long: " in line for line in head):
                found.append(node.name)
    return found


@pytest.mark.parametrize(
    ("head", "length", "found"),
    [
        ("def f():", 60, []),
        ("def f():", 61, ["f"]),
        ("# long: a table\ndef f():", 61, []),
        ("def f():  # long: a table", 61, []),
        ("# long: a table\n@cache\ndef f():", 61, []),
        ("class A:\n  def f(self):", 61, ["f"]),
    ],
)
def test_the_reader_of_functions(head, length, found):
    assert long_functions("\n".join([head, *["    x = 1"] * (length - 1)])) == found


def test_no_file_is_longer_than_450_lines():
    assert {name: n for name, text in SOURCES.items() if (n := text.count("\n")) > 450} == {}


def test_no_study_is_longer_than_150_lines():
    files = [f"lrurun/studies/{name}.py" for name in studies.names()]
    assert {name: n for name in files if (n := SOURCES[name].count("\n")) > 150} == {}


def test_no_function_is_longer_than_60_lines_without_a_reason():
    assert {name: found for name, text in SOURCES.items() if (found := long_functions(text))} == {}


def test_few_modules_are_outside_of_packages():
    assert len(list((ROOT / "lrurun").glob("*.py"))) <= 10
