"""The module that a user's program imports: by hand, within a run, and without anything that is installed."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lrurun import paths
from lrurun.config import programs
from lrurun.programs.module.lrurun import METRIC_NAME

FOLDER = Path(paths.__file__).parent / "programs" / "module"


def execute(folder: Path, code: str, *script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Executes code, or a script with its arguments, with the module alone: without the packages that are installed."""
    return subprocess.run(
        [sys.executable, "-S", *(script or ("-c", f"import lrurun\n{code}"))],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(FOLDER), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def within(folder: Path, code: str, *script: str, **table: object) -> subprocess.CompletedProcess[str]:
    """The same within a run with these settings."""
    return execute(folder, code, *script, **_places(folder, **table))


def _places(folder: Path, **table: object) -> dict[str, str]:
    """The environment variables of a run with these settings."""
    (folder / "config.json").write_text(json.dumps({"seed": 0} | table))
    places = {"CONFIG": "config.json", "FOLDER": "kept", "METRICS": "metrics.jsonl"}
    return {f"LRURUN_{name}": str(folder / path) for name, path in places.items()}


def test_by_hand_a_run_has_the_settings_of_the_script(tmp_path: Path) -> None:
    """It prints its metrics, and its folder is the working directory."""
    code = (
        "run = lrurun.this_run(lr=0.1, block={'wide': True})\n"
        "run.log(3, **{'train/loss': 1 / 3, 'val/accuracy': 1})\n"
        "print(run.settings.lr, run.settings['block'].wide, run.seed, run.folder, run.should_stop)\n"
        "print(lrurun.this_run(lr=9) is run)\n"
    )
    done = execute(tmp_path, code)
    assert done.stdout.splitlines() == [
        "step 3: train/loss 0.333333, val/accuracy 1",
        f"0.1 True 0 {tmp_path} False",
        "True",
    ]
    assert not list(tmp_path.iterdir())


def test_within_a_run_the_settings_of_the_recipe_come_first(tmp_path: Path) -> None:
    code = (
        "run = lrurun.this_run(lr=0.1, other='x')\n"
        "run.log(1.0, loss=float('nan'), **{'val/accuracy': 1})\n"
        "run.log(2)\n"
        "print(run.settings, run.settings.block.width, run.seed, run.folder)\n"
    )
    done = within(tmp_path, code, lr=0.5, block={"width": 3}, seed=7)
    settings = {"lr": 0.5, "other": "x", "block": {"width": 3}}
    assert done.stdout == f"{settings} 3 7 {tmp_path / 'kept'}\n", done.stderr
    assert (tmp_path / "metrics.jsonl").read_text() == ('{"step": 1, "loss": NaN, "val/accuracy": 1.0}\n{"step": 2}\n')


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("run.log(-1)", "ValueError: step: expected a whole number from 0 on, found -1"),
        ("run.log(1.5)", "ValueError: step: expected a whole number from 0 on, found 1.5"),
        ("run.log(True)", "ValueError: step: expected a whole number from 0 on, found True"),
        ("run.log(1, loss='x')", "TypeError: loss: expected a number, found 'x'"),
        ("run.log(1, loss=[1, 2])", "TypeError: loss: expected a number, found [1, 2]"),
        (
            "run.log({'loss': 1})",
            'TypeError: step: expected a whole number, found metrics: log(3, {"val/accuracy": 0.9})',
        ),
        ("run.log(1, 0.9)", 'TypeError: expected metrics by name, as in log(3, {"val/accuracy": 0.9}), found 0.9'),
        (
            "run.log(1, [('loss', 1)])",
            "TypeError: expected metrics by name, as in log(3, {\"val/accuracy\": 0.9}), found [('loss', 1)]",
        ),
        ("run.log(1, None)", 'TypeError: expected metrics by name, as in log(3, {"val/accuracy": 0.9}), found None'),
        ("run.log(1, {2: 0.9})", "TypeError: expected the name of a metric, found 2"),
        ("run.log(1, {'loss': 1}, loss=1)", "TypeError: loss: is there twice"),
        ("run.log(1, {'step': 2})", "TypeError: step: is there twice"),
        ("run.log(float('nan'))", "ValueError: step: expected a whole number from 0 on, found nan"),
        ("run.log(float('inf'))", "ValueError: step: expected a whole number from 0 on, found inf"),
        ("run.log('3')", "ValueError: step: expected a whole number from 0 on, found '3'"),
        ("run.settings.rate", "AttributeError: no setting 'rate'; there are: lr"),
    ],
)
def test_a_wrong_call_is_an_error_in_the_script(tmp_path: Path, code: str, message: str) -> None:
    done = within(tmp_path, f"run = lrurun.this_run()\n{code}", lr=1, seed=0)
    assert done.stderr.splitlines()[-1] == message
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_metrics_are_given_in_mappings_and_by_keywords(tmp_path: Path) -> None:
    """What was not measured is left out, and a whole number may be larger than any fraction."""
    code = (
        "from types import MappingProxyType\n"
        "run = lrurun.this_run()\n"
        "run.log(1, {'val/accuracy': 0.9})\n"
        "run.log(2, {'val/accuracy': 0.5}, MappingProxyType({'a': 1}), loss=0.25)\n"
        "run.log(step=3, loss=None, tables=1, metrics=2)\n"
        "run.log(4, {'loss': None})\n"
        "run.log(5, {}, a=10**400, b=-10**400)\n"
    )
    done = within(tmp_path, code, seed=0)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [
        {"step": 1, "val/accuracy": 0.9},
        {"step": 2, "val/accuracy": 0.5, "a": 1.0, "loss": 0.25},
        {"step": 3, "tables": 1.0, "metrics": 2.0},
        {"step": 4},
        {"step": 5, "a": math.inf, "b": -math.inf},
    ]


def test_results_of_items_are_a_line_of_plain_json(tmp_path: Path) -> None:
    """Which a program in another language can write. The step is that of the last log, or named."""
    code = (
        "run = lrurun.this_run()\n"
        "run.log(4, {'test/accuracy': 0.5})\n"
        "run.log_items('test/accuracy', [True, 0, 1.0, 0.25])\n"
        "run.log_items('test@long/loss', (x for x in (2, float('nan'))), step=7, weights=[1, 0.5], groups=['a', 3],"
        " ids=range(2))\n"
    )
    done = within(tmp_path, code, seed=0)
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "metrics.jsonl").read_text().splitlines() == [
        '{"step": 4, "test/accuracy": 0.5}',
        '{"step": 4, "items": "test/accuracy", "values": [1, 0, 1, 0.25]}',
        '{"step": 7, "items": "test@long/loss", "values": [2.0, NaN], "weights": [1, 0.5], "groups": ["a", 3], '
        '"ids": [0, 1]}',
    ]
    assert execute(tmp_path, code).stdout.splitlines() == [
        "step 4: test/accuracy 0.5",
        "step 4: 4 items of test/accuracy, mean 0.5625",
        "step 7: 2 items of test@long/loss, mean nan",
    ]


def test_arrays_of_numpy_and_jax_are_results_of_items(tmp_path: Path) -> None:
    code = (
        "import lrurun, numpy as np, jax.numpy as jnp\n"
        "run = lrurun.this_run()\n"
        "run.log(np.int64(1))\n"
        "groups, ids = np.array(['a', 'b']), np.arange(2)\n"
        "for values in (np.array([True, False]), jnp.array([1, 0], jnp.int8), np.array([0.5, 2], np.float16),\n"
        "               jnp.array([0.5, 2], jnp.bfloat16), [jnp.array(True), np.float32(0)], [np.bool_(1), False]):\n"
        "    run.log_items('test/a', values, groups=groups, ids=ids)\n"
        "run.log_items('test/a', np.zeros(2), weights=np.ones(2, np.int32), groups=[np.int8(3), np.str_('x')])\n"
        "run.log_items('test/a', [jnp.zeros(2), jnp.zeros(2)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(FOLDER), **_places(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row.pop("values") for row in rows[1:]] == [[1, 0]] * 2 + [[0.5, 2]] * 2 + [[1, 0]] * 2 + [[0, 0]]
    one = {"step": 1, "items": "test/a", "groups": ["a", "b"], "ids": [0, 1]}
    assert rows == [{"step": 1}, *[one] * 6, {"step": 1, "items": "test/a", "weights": [1, 1], "groups": [3, "x"]}]
    assert done.stderr.splitlines()[-1] == (
        "TypeError: values: expected one entry for each test item, found sequences: join those of all batches"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "'test/a', [1]",
            "ValueError: step: nothing was logged yet; name it, as in log_items('test/a', values, step=3)",
        ),
        ("'test/a', [1], -1", "ValueError: step: expected a whole number from 0 on, found -1"),
        ("'val/a', [1], 1", "ValueError: expected the name of a test score, as in 'test/accuracy', found 'val/a'"),
        ("'test//a', [1], 1", "ValueError: expected the name of a test score, as in 'test/accuracy', found 'test//a'"),
        ("{'test/a': [1]}, 1", "TypeError: expected the name of a test score, as in 'test/accuracy', found {'test/a'"),
        ("'test/a', 3, 1", "TypeError: values: expected a sequence with one entry for each test item, found 3"),
        ("'test/a', '101', 1", "TypeError: values: expected a sequence with one entry for each test item, found '101'"),
        (
            "'test/a', {1, 0}, 1",
            "TypeError: values: expected a sequence with one entry for each test item, found {0, 1}",
        ),
        ("'test/a', [[1], [0]], 1", "TypeError: values: expected one entry for each test item, found sequences: join"),
        ("'test/a', [1, None], 1", "TypeError: values[1]: expected a number, found None"),
        ("'test/a', ['1'], 1", "TypeError: values[0]: expected a number, found '1'"),
        ("'test/a', [], 1", "ValueError: values: expected 1 to 1,000,000 entries, found 0"),
        ("'test/a', [0] * 1000001, 1", "ValueError: values: expected 1 to 1,000,000 entries, found 1,000,001"),
        ("'test/a', [1, 0], 1, [1]", "ValueError: weights: has 1 entries, for 2 values"),
        ("'test/a', [1, 0], 1, [1, -1]", "ValueError: weights[1]: expected a number from 0 on, found -1.0"),
        ("'test/a', [1, 0], 1, [0, 0]", "ValueError: weights: are all 0"),
        ("'test/a', [1, 0], 1, groups=[1.5, 2]", "TypeError: groups[0]: expected a name or a whole number, found 1.5"),
        ("'test/a', [1, 0], 1, ids=['x', 'x']", "ValueError: ids: the same one is there twice"),
    ],
)
def test_a_wrong_column_is_an_error_in_the_script(tmp_path: Path, arguments: str, message: str) -> None:
    """Also by hand; nothing is written."""
    code = f"run = lrurun.this_run()\nrun.log_items({arguments})"
    for done in (execute(tmp_path, code), within(tmp_path, code, seed=0)):
        assert done.stderr.splitlines()[-1].startswith(message)
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_by_hand_a_name_that_a_run_could_not_have_is_an_error(tmp_path: Path) -> None:
    """Within a run the worker refuses it, and does not try again."""
    code = "run = lrurun.this_run()\nrun.log(1, {'val//x': 1})\n"
    assert execute(tmp_path, code).stderr.splitlines()[-1] == (
        "ValueError: 'val//x' is no name of a metric: names have a letter, then letters, digits, '/', '.', '_', '-' "
        "and '@', at most 100, and on each side of a '/' more than dots"
    )
    assert within(tmp_path, code, seed=0).stderr == ""
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "val//x": 1.0}\n'


def test_sigterm_is_kept_from_the_first_look_on(tmp_path: Path) -> None:
    """A script that never looks is ended by it."""
    kill = "import os, signal\nrun = lrurun.this_run()\n{}os.kill(os.getpid(), signal.SIGTERM)\nprint(run.should_stop)"
    assert execute(tmp_path, kill.format("")).returncode == -15
    assert execute(tmp_path, kill.format("assert not run.should_stop\n")).stdout == "True\n"
    thread = (
        "import threading\nrun = lrurun.this_run()\nthreading.Thread(target=lambda: print(run.should_stop)).start()"
    )
    assert execute(tmp_path, thread).stdout == "False\n"
    later = "thread = threading.Thread(target=lambda: run.should_stop)\nthread.start()\nthread.join()\n"
    later = f"import threading\n{kill.format(later + 'assert not run.should_stop' + chr(10))}"
    assert execute(tmp_path, later).stdout == "True\n", "of the main thread, whatever looked before"


_FORKS = """\
import ctypes, multiprocessing, os, signal, sys, threading, time
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
run = lrurun.this_run()
context = multiprocessing.get_context("fork")

def in_child(work, fork=os.fork):
    child = fork()
    if not child:
        os._exit(work() or 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def ends():
    assert not run.should_stop
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)
    return 50

def identity(value):
    assert not run.should_stop
    return value

"""
FORKS = {
    "a pool in a loop": """\
for epoch in range(10):
    assert not run.should_stop
    with context.Pool(2) as pool:
        assert pool.map(identity, range(4)) == [0, 1, 2, 3]
""",
    "a pool of a later look": """\
with context.Pool(2) as pool:
    assert pool.map(identity, range(4)) == [0, 1, 2, 3]
    assert not run.should_stop
""",
    "processes that are ended at once": """\
assert not run.should_stop
for _ in range(40):
    child = context.Process(target=time.sleep, args=(100,))
    child.start()
    child.terminate()
    child.join(10)
    assert child.exitcode == -15, child.exitcode
""",
    "futures": """\
assert not run.should_stop
with ProcessPoolExecutor(2, mp_context=context) as executor:
    assert list(executor.map(identity, range(4))) == [0, 1, 2, 3]
    error = executor.submit(ends).exception()  # the executor ends the other worker by SIGTERM too
    assert type(error) is BrokenProcessPool
""",
    "a fork": """\
assert not run.should_stop
assert in_child(ends) == -15
assert in_child(lambda: in_child(ends) == -15) == 1, "of a fork"
""",
    "a fork of a thread": """\
assert not run.should_stop
codes = []
thread = threading.Thread(target=lambda: codes.append(in_child(ends)))
thread.start()
thread.join()
assert codes == [-15]
""",
    "a fork that is not Python's": """\
assert not run.should_stop
assert in_child(ends, ctypes.PyDLL(None).fork) == -15
""",
    "a handler before": """\
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
assert not run.should_stop
assert in_child(ends) == 7
""",
    "a handler before, which ignores it": """\
signal.signal(signal.SIGTERM, signal.SIG_IGN)
assert not run.should_stop
assert in_child(ends) == 50
""",
    "a handler after, which calls the first": """\
assert not run.should_stop
first = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *args: first(*args))
assert in_child(ends) == -15
""",
    "a handler after, which does not": """\
assert not run.should_stop
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
assert in_child(ends) == 7
signal.signal(signal.SIGTERM, run._stop)
""",
    "a signal that is blocked": """\
assert not run.should_stop
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
assert in_child(ends) == 50
assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, set())
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
""",
}


@pytest.mark.parametrize("kind", FORKS)
def test_sigterm_is_kept_by_the_process_that_looked_and_by_no_child(tmp_path: Path, kind: str) -> None:
    """A child ends as without lrurun, and reports nothing; the process that looked still keeps it."""
    end = "os.kill(os.getpid(), signal.SIGTERM)\nassert run.should_stop\nprint('end')\n"
    done = within(tmp_path, _FORKS + FORKS[kind] + end, seed=0)
    assert (done.stdout, done.returncode) == ("end\n", 0), done.stderr
    assert (tmp_path / "metrics.jsonl").read_text() == '{"interrupted": true}\n'


def test_a_run_that_is_given_to_another_process_reports_from_there(tmp_path: Path) -> None:
    """By pickle, as of a process that is not forked: the file has another number there. Its worker ends by SIGTERM."""
    (tmp_path / "spawns.py").write_text(
        "import lrurun, multiprocessing, sys\n"
        "run = lrurun.this_run()\n"
        "def work(run, step):\n"
        "    run.log(step, loss=0.5)\n"
        "    return run.should_stop, lrurun.this_run().should_stop, run.settings.block.width, run.seed, run.folder\n"
        "if __name__ == '__main__':\n"
        "    assert not run.should_stop\n"
        "    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:\n"
        "        print(pool.apply(work, (run, 3)))\n"
    )
    for method in ("spawn", "forkserver", "fork"):
        (tmp_path / "metrics.jsonl").unlink(missing_ok=True)
        done = within(tmp_path, "", "spawns.py", method, seed=7, block={"width": 3})
        assert done.stdout == f"(False, False, 3, 7, '{tmp_path / 'kept'}')\n", done.stderr
        assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 3, "loss": 0.5}\n'


def test_it_is_one_file_of_the_standard_library_for_old_interpreters() -> None:
    [path] = FOLDER.glob("*.py")
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names - sys.stdlib_module_names == set()
    unevaluated = {
        part
        for node in ast.walk(tree)
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if annotation is not None
        for part in ast.walk(annotation)
    }
    subscripts = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and node not in unevaluated]
    later = {"dict", "list", "set", "tuple", "type"}  # which take types from 3.9 on
    assert {ast.unparse(node.value) for node in subscripts} & later == set()


def test_names_of_metrics_are_the_same_for_patterns_of_read_and_for_what_is_logged() -> None:
    """The module imports nothing of lrurun, so that the rule stands in both."""
    assert programs.METRIC_NAME.pattern == METRIC_NAME.pattern
    assert programs.METRIC_NAME.flags == METRIC_NAME.flags
    for name, is_valid in (("val/.x", True), ("val/..x", True), ("val/..", False), ("a/", False), ("machine/x", False)):
        program = programs.ProgramTable(command=("sh",), metric="val/x", read={name: "(x)"})
        faults = [fault for fault in programs.rules(program, {}, "r.toml") if "no name" in fault.message]
        assert bool(faults) is not is_valid
