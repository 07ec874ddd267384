"""Short names of instances: short, safe in a shell, and different where what they show differs."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrurun.config import names
from lrurun.config.names import (
    LONGEST,
    LONGEST_PROPOSED,
    NameParts,
    beside,
    check,
    check_new,
    in_folder,
    proposed,
    swept,
)
from lrurun.errors import UsageError

VALUES = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=30),
    st.lists(st.floats(0, 1) | st.integers(0, 9), max_size=3),
    st.none(),
)
PATHS = st.from_regex(r"[a-z]{1,8}(\.[a-z_]{1,12}[0-9]?){0,3}", fullmatch=True)
PARTS = st.builds(
    NameParts,
    files=st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=2).map(tuple),
    options=st.lists(st.sampled_from(["smoke", "laptop", "tune"]), unique=True, max_size=2).map(tuple),
    changes=st.dictionaries(PATHS, VALUES, max_size=6),
)


def parts(*files: str, options: tuple[str, ...] = (), **changes: Any) -> NameParts:
    """Of files and options; "__" stands for a dot in the paths of settings."""
    by_path = {path.replace("__", "."): value for path, value in changes.items()}
    return NameParts(files=files, options=options, changes=by_path)


NAMED = [
    (parts("npDigits"), "npDigits"),
    (parts("npDigits", optim__lr=0.01), "npDigits-lr0.01"),
    (parts("npDigits", optim__lr=0.0010), "npDigits-lr0.001"),
    (parts("npDigits", optim__lr=1e-05), "npDigits-lr1e-5"),
    (parts("npDigits", optim__lr=0.0031622776601683795), "npDigits-lr0.003162"),
    (parts("npDigits", train__steps=20000.0), "npDigits-steps20000"),
    (parts("npDigits", options=("smoke", "tune"), model__glu="full"), "npDigits-smoke-tune-glu-full"),
    # of an optimiser, the name alone; of other settings that are called a name, which one
    (parts("npDigits", optim__name="muon", optim__lr=0.01), "npDigits-muon-lr0.01"),
    (parts("npDigits", settings__name="muon"), "npDigits-name-muon"),
    (
        parts("npDigits", options=("smoke",), optim__name="schedule_free_adamw", optim__schedule="constant"),
        "npDigits-smoke-schedule_free_adamw-and1",
    ),
    (parts("npDigits", model__tied=True, model__bias=False), "npDigits-tied-true-bias-false"),
    (parts("npDigits", model__lr=0.1, optim__lr=0.2), "npDigits-model.lr0.1-optim.lr0.2"),
    (parts("npDigits", a__lr=0.1, b__a__lr=0.2), "npDigits-a.lr0.1-b.a.lr0.2"),
    (parts("npDigits", settings__layer1=5), "npDigits-layer1_5"),
    (parts("npDigits", settings__name="5"), "npDigits-name_5"),
    (parts("npDigits", settings__shift=-5), "npDigits-shift-5"),
    (parts("npDigits", optim__betas=[0.9, 0.99]), "npDigits-betas0.9-0.99"),
    (parts("npDigits", settings__file="/data/my file's.npz"), "npDigits-file-data-my-file-s.npz"),
    (parts("train", "wider"), "train-wider"),
    (parts("train", "train-wider"), "train-wider"),
    (parts("train-wider", "wider"), "train-wider"),
    (parts("npDigits-smoke", options=("smoke",)), "npDigits-smoke"),
    (parts("Übung"), "Ubung"),
    (parts("数据"), "ladder"),
    (parts("fade"), "fade-ladder"),  # it could be the beginning of an id
    (parts("ace-2"), "ace-2-ladder"),
    (parts("a" * 90, "b" * 70, options=("smoke",)), f"{'a' * 16}-{'b' * 17}-smoke"),
    (
        parts("a" * 90, "b" * 70, options=("smoke",), x__lr=0.1, x__width=24),
        f"{'a' * 9}-{'b' * 10}-smoke-lr0.1-width24",
    ),
    (parts("npDigits", **{f"a__key{n}": n + 0.25 for n in range(9)}), "npDigits-key0_0.25-key1_1.25-and7"),
]


@pytest.mark.parametrize(("made", "name"), NAMED, ids=[name for _, name in NAMED])
def test_names_say_what_distinguishes(made: NameParts, name: str) -> None:
    assert proposed(made) == name


@given(PARTS, st.dictionaries(PATHS, VALUES, max_size=6))
def test_every_proposed_name_is_short_and_needs_no_quotes(made: NameParts, other: dict[str, Any]) -> None:
    ahead = [proposed(made), *beside(made, other), in_folder(made, "my folder")]
    assert ahead == [proposed(made), *beside(made, other), in_folder(made, "my folder")]
    for name in ahead:
        assert name.isascii()
        assert shlex.quote(name) == name
        assert not name.startswith("-")
        assert not names.is_like_id(name)
        assert 0 < len(name) <= LONGEST + len("-ladder")
    assert len(proposed(made)) <= LONGEST_PROPOSED + len("-ladder")


WORDS = st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True)


SHOWN = st.integers(-(10**6), 10**6) | st.decimals(-100, 100, places=3).map(float) | st.booleans() | WORDS
"""Values that a name has whole."""


@given(PATHS, st.tuples(SHOWN, SHOWN))
def test_names_differ_where_a_value_differs_that_they_show(path: str, values: tuple[Any, Any]) -> None:
    first, second = (proposed(NameParts(files=("n",), changes={path: value})) for value in values)
    assert not first.startswith("n-set")
    as_typed = [str(value).lower() if isinstance(value, bool) else value for value in values]
    assert (first == second) == (as_typed[0] == as_typed[1])


@given(PARTS, PATHS, st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)).filter(lambda pair: pair[0] != pair[1]))
def test_a_name_beside_another_says_in_which_setting_they_differ(
    made: NameParts, path: str, pair: tuple[float, float]
) -> None:
    made = NameParts(files=("n",), changes={**made.changes, path: pair[0]})
    other = {**made.changes, path: pair[1]}
    own, theirs = [*beside(made, other)], [*beside(NameParts(files=("n",), changes=other), made.changes)]
    assert own[-1] != theirs[-1]


def test_names_beside_others() -> None:
    many = {f"a.key{n}": n + 0.25 for n in range(9)}
    found = [*beside(parts("npDigits-smoke", options=("smoke",)), {})]
    assert found == ["npDigits-smoke-smoke", "npDigits-smoke", "npDigits-smoke"]
    found = [*beside(NameParts(files=("npDigits",), changes=many), {**many, "a.key8": 3})]
    assert found[1] == "npDigits-key8_8.25-key0_0.25-and7"
    found = [*beside(parts("npDigits", a__x=1, a__y=True), {"a.x": 1.0, "a.y": 1})]
    assert found[1] == "npDigits-y-true-x1", "1 and 1.0 are the same value, 1 and true are not"
    close = [*beside(parts("n", optim__lr=0.12345678), {"optim.lr": 0.12345679})]
    assert close == ["n-lr0.1235", "n-lr0.1235", "n-lr0.12345678"]
    assert in_folder(parts("train", "wider"), "second") == "train-wider-second"


def test_names_of_a_sweep() -> None:
    assert swept("wide", [{"optim.lr": 0.1}, {"optim.lr": 0.2}]) == ["wide-lr0.1", "wide-lr0.2"]
    close = swept("wide", [{"optim.lr": 0.12345678}, {"optim.lr": 0.12345679}])
    assert close == ["wide-lr0.12345678", "wide-lr0.12345679"]
    with pytest.raises(UsageError, match="two instances of the sweep would be w-x-a-b"):
        swept("w", [{"x": "a b"}, {"x": "a-b"}])
    with pytest.raises(UsageError, match=r"makes w{58}-x1, of 61 characters, at most 60 are possible"):
        swept("w" * 58, [{"x": 1}])


@pytest.mark.parametrize("name", ["x", "npDigits-wide", "a+b_c.d-2", "face-off", "ab", "feedbacks", "a" * 60])
def test_names_that_can_be_given(name: str) -> None:
    assert check(name, "--name") == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "expected a letter"),
        ("2nd", "expected a letter"),
        ("-x", "expected a letter"),
        ("a b", "expected a letter"),
        ("a/b", "expected a letter"),
        ("ä", "expected a letter"),
        ("x\n", "expected a letter"),
        ("a" * 61, "expected a letter"),
    ],
)
def test_names_that_cannot_be_given(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check(name, "NEW")


@pytest.mark.parametrize("name", ["dead", "Face", "ace-2"])
def test_a_new_name_is_no_beginning_of_an_id(name: str) -> None:
    assert check(name, "--name") == name, "an instance may have had it since 1.0"
    with pytest.raises(UsageError, match=f"^rename {name}: could be the beginning of an id"):
        check_new(name, f"rename {name}")
