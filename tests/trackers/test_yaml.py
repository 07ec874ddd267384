"""Settings in YAML: numbers as PyYAML reads them; nothing is called, nothing grows without end."""

from __future__ import annotations

import math
import os

import pytest
import yaml as pyyaml

from lrurun.errors import UsageError
from lrurun.trackers import yaml

TEXT = """\
a: 1e-3
b: 1:30
c: 010
d: on
e: nan
f: .nan
g: 1.0e-05
h: 2026-11-28
i: 1E5
j: -1e+3
k: 1_000
l: e5
m: 1e
n: =
1: x
null: y
"""


@pytest.fixture
def table(tmp_path):
    def of(text):
        path = tmp_path / "settings.yaml"
        path.write_text(text, encoding="utf-8")
        return yaml.table(path)

    return of


def same(one, other):
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def test_numbers_as_pyyaml_reads_them(table):
    text = "\n".join(line for line in TEXT.splitlines() if line[0] not in "hn")  # a date, and a value without a meaning
    expected = {str(key): value for key, value in pyyaml.safe_load(text).items()}
    found = table(text)
    assert found.keys() == expected.keys()
    assert all(same(found[key], expected[key]) and type(found[key]) is type(expected[key]) for key in found)
    assert (found["a"], found["b"], found["c"], found["d"], found["e"]) == ("1e-3", 90, 8, True, "nan")


def test_other_values(table):
    found = table(TEXT)
    assert (found["h"], found["n"], found["1"], found["None"]) == ("2026-11-28", "=", "x", "y")
    assert table("a: !!set {y, x}\nb: !!binary aGk=\nc: {d: [1, {e: 2}]}") == {
        "a": ["x", "y"],
        "b": "aGk=",
        "c": {"d": [1, {"e": 2}]},
    }
    assert table("base: &base {a: 1}\nother:\n  <<: *base\n  b: 2")["other"] == {"a": 1, "b": 2}
    assert pyyaml.safe_load("a: 2026-11-28")["a"] != "2026-11-28"  # the loader of the package is as it was
    assert table("") == {}
    assert table("# nothing\n") == {}
    assert table("\ufeffa: 1") == {"a": 1}


def test_python_objects_are_texts_and_nothing_is_called(table, tmp_path):
    target = tmp_path / "called"
    found = table(f"""\
call: !!python/object/apply:os.system ["touch {target}"]
new: !!python/object/new:subprocess.Popen [["touch", "{target}"]]
name: !!python/name:os.system ''
module: !!python/module:os
object: !!python/object:argparse.Namespace {{lr: 0.1, nested: !!python/tuple [1, 2]}}
own: !Point [1, 2]
text: !!python/unicode abc
path: !!python/object/apply:pathlib.PosixPath [/, data, x]
""")
    assert not os.path.exists(target)
    assert found["call"] == f"os.system(touch {target})"
    assert found["new"].startswith("subprocess.Popen(")
    assert {name: found[name] for name in ("name", "module", "object", "own", "text", "path")} == {
        "name": "os.system",
        "module": "os",
        "object": {"lr": 0.1, "nested": [1, 2]},
        "own": [1, 2],
        "text": "abc",
        "path": "/data/x",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "is not YAML"),
        ("a: 1\nb: c: d\n", ", line 2: is not YAML"),
        ("a: 0x_", "is not YAML"),
        ("a: \x01", "is not YAML"),
        ("--- 1\n--- 2\n", "is not YAML"),
        ("? [1]\n: 2", "is not YAML"),
        ("a: &a {b: *a}", "refers to itself"),
        ("a: &a [*a]", "refers to itself"),
        ("[" * 5000, "settings.yaml"),  # by the parser, or by Python
        ("a: &x0 [1]\n" + "".join(f"a{n}: &x{n} [{f'*x{n - 1},' * 10}]\n" for n in range(1, 12)), "more than 100,000"),
        ("just text", "found str"),
    ],
)
def test_bad_files(table, text, message):
    with pytest.raises(UsageError) as caught:
        table(text)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_version_1_2(tmp_path):
    """The core schema, which ruamel.yaml reads and DVCLive and W&B write; nothing is made of tags in it."""
    path = tmp_path / "settings.yaml"
    path.write_text("a: 1e-05\nb: 1:30\nc: 010\nd: on\ne: nan\nf: .inf\ng: 0o17\nh: 2026-11-28\ni: 1_000\n1: ~\n")
    assert yaml.table(path, "1.2") == {
        **{"a": 1e-5, "b": "1:30", "c": 10, "d": "on", "e": "nan", "f": math.inf, "g": 15, "h": "2026-11-28"},
        **{"i": "1_000", "1": None},
    }
    assert yaml.table(path)["c"] == 8  # the loaders are apart
    path.write_text("a: &x0 [1]\n" + "".join(f"a{n}: &x{n} [{f'*x{n - 1},' * 10}]\n" for n in range(1, 12)))
    with pytest.raises(UsageError, match="more than 100,000"):
        yaml.table(path, "1.2")
    path.write_text("a: !!python/object/apply:os.getpid []\n")
    with pytest.raises(UsageError, match="line 1: is not YAML: could not determine a constructor"):
        yaml.table(path, "1.2")
