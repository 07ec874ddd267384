"""`lrurun ledger hide`: instances that lists leave out, and no verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.server import Server
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.servers import PrivateServer
from tests.harness.stores import SERVER, machine_with, raw, want

SCORES = {"tanh-rnn": (0.8, 0.81), "linear-rnn": (0.9, 0.91)}


@pytest.fixture(params=["file", SERVER])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """Three instances on sDigits: sDigits, sDigits-smoke with learning rates 0.01 and 0.5 in its rungs, and wide."""
    for made in machine_with(request.param, tmp_path / "here", request):
        fill(made.ledger, "sDigits", SCORES)
        fill(made.ledger, "sDigits", SCORES, profile="smoke")
        fill(made.ledger, "sDigits", SCORES, profile="smoke", sets={"optim.lr": 0.5})
        yield made


on_file = pytest.mark.parametrize("machine", ["file"], indirect=True)


def names(machine: Machine) -> list[str]:
    with Ledger.read(machine.ledger) as ledger:
        return [ladder.short_name for ladder in ledger.ladders()]


def hidden(machine: Machine) -> list[str]:
    with Ledger.read(machine.ledger) as ledger:
        return [ledger.ladder(key).short_name for key in ledger.hidden()]


def done(machine: Machine, *words: str) -> tuple[str, str]:
    """What `lrurun ledger hide WORDS` prints and says."""
    result = machine.run("ledger", "hide", *words)
    return result.stdout, result.stderr


def test_an_instance_is_hidden_and_shown_again(machine: Machine) -> None:
    plain, smoke, fast = names(machine)
    with Ledger.read(machine.ledger) as ledger:
        key, before = ledger.ladder(smoke).key, ledger.clock()
    assert done(machine, smoke) == (f"hidden: {smoke}\n", "")
    assert done(machine, key[:6], smoke, fast) == (f"hidden: {fast}\nhidden already: {smoke}\n", "")
    with Ledger.read(machine.ledger) as ledger:
        (kept,) = [entry for name, entry in ledger.hidden().items() if name == key]
        assert kept.user == owner.user()
        assert before <= kept.time <= ledger.clock()
        events = [event for event in ledger.events(ladder_key=key, of_runs=False) if event.kind == "hidden"]
    assert [(event.time, event.text) for event in events] == [(kept.time, f"by {owner.user()}")]
    assert done(machine, smoke, plain, "--undo") == (f"shown again: {smoke}\nnot hidden: {plain}\n", "")
    assert hidden(machine) == [fast]
    assert machine.json("ledger", "hide", plain, fast) == {
        **{"schema_version": 1, "changed": [plain], "unchanged": [fast]},
        **{"in_part": [], "left_to_others": {}},
    }
    assert machine.json("ledger", "hide", plain, fast, "--undo")["changed"] == [plain, fast]
    assert hidden(machine) == []


def test_a_condition_hides_the_instances_all_of_whose_runs_meet_it(machine: Machine) -> None:
    _, smoke, fast = names(machine)
    assert done(machine, "--where", "optim.lr=0.5") == (f"hidden: {fast}\n", "")
    with Ledger.read(machine.ledger) as ledger:
        in_part = ledger.ladder(smoke).key
        [run] = [run for run in ledger.runs(in_part) if (run.memberships[0].rung, run.seed) == ("tanh-rnn", 0)]
    machine.run("mark", run.id, "--tag", "odd")
    said = f"left as they are, for only some of their runs meet the condition: {smoke}, 1 of 4 runs\n"
    nothing = "nothing hidden: no instance has only runs that meet the condition\n"
    assert done(machine, "--where", "tag=odd") == (nothing, said)
    found = machine.json("ledger", "hide", "--where", f"id={run.id}")
    assert found["in_part"] == [{"name": smoke, "instance": in_part, "runs": 1, "of": 4}]
    assert done(machine, "--where", "optim.lr=0.5") == (f"hidden already: {fast}\n", "")
    nothing = "nothing shown again: no hidden instance has only runs that meet the condition\n"
    assert done(machine, "--where", "tag=odd", "--undo") == (nothing, "")
    assert done(machine, "--where", "task=sDigits", "--undo") == (f"shown again: {fast}\n", "")
    assert hidden(machine) == []


def test_superseded_runs_do_not_count(machine: Machine) -> None:
    """They are in no list either."""
    smoke = names(machine)[1]
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.ladder(smoke).key
        run = ledger.runs(key)[0]
        place = run.memberships[0]
        ledger.enqueue(key, [want(place.rung, run.seed, place.position, fingerprint=run.fingerprint)], fresh=True)
        newest = [run.id for run in ledger.runs(key)]
        assert len(ledger.runs(key, superseded=True)) == len(newest) + 1
        ledger.mark(newest, tag=["odd"])
    assert done(machine, "--where", "tag=odd") == (f"hidden: {smoke}\n", "")


@on_file
@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (
            (),
            2,
            "error: hide: expected an INSTANCE or --where\n"
            "hint: lrurun status lists them; those that are hidden: status --hidden\n",
        ),
        (
            ("sDigit",),
            4,
            "error: no ladder instance 'sDigit' in this ledger\nhint: did you mean 'sDigits'? see `lrurun status`\n",
        ),
        (
            ("sDigits", "--where", "seed=1"),
            2,
            "error: INSTANCE ... and --where exclude each other\nhint: leave one of them out\n",
        ),
        (
            ("--where", "task=sDigit"),
            4,
            "error: --where: none of 12 runs meets the condition in LEDGER\nhint: did you mean task=sDigits?\n",
        ),
        (("--where", "sed=1"), 2, "error: --where, column 1: unknown name 'sed'\nhint: did you mean 'seed'?"),
    ],
)
def test_wrong_requests_hide_nothing(machine: Machine, words: tuple[str, ...], code: int, error: str) -> None:
    result = machine.run("ledger", "hide", *words, code=code)
    assert result.stderr.startswith(error.replace("LEDGER", str(machine.ledger)))
    assert result.stdout == ""
    assert hidden(machine) == []


@on_file
def test_there_must_be_a_ledger(machine: Machine) -> None:
    machine.ledger.unlink()
    assert "there is no ledger at " in machine.refused("ledger", "hide", "sDigits", code=4)
    assert not machine.ledger.exists()


# Lists and verdicts


def test_hiding_changes_no_verdict_and_no_run(machine: Machine) -> None:
    _, smoke, _ = names(machine)
    ladder = ("sDigits", "--profile", "smoke")
    before = [machine.json("report", *ladder), machine.json("runs"), machine.json("claims", "sDigits")]
    shown = machine.run("report", *ladder).stdout
    machine.run("ledger", "hide", smoke)
    line = f"instance {smoke} is hidden: lists leave it out; lrurun ledger hide {smoke} --undo shows it again\n"
    report = machine.run("report", *ladder)
    assert line in report.stderr
    assert report.stdout == shown
    assert machine.run("report", "--instance", smoke).stdout == shown
    after = [machine.json("report", *ladder), machine.json("runs"), machine.json("claims", "sDigits")]
    assert after[:2] == before[:2]
    for earlier, later in zip(before[2]["claims"], after[2]["claims"], strict=True):
        detail = later["here"].pop("detail")
        assert detail.removesuffix(f"; by the hidden instance {smoke}") == earlier["here"].pop("detail")
        assert earlier["here"] == later["here"]


def test_claims_say_which_are_judged_by_a_hidden_instance(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one")
    fill(machine.ledger, "sDigits", SCORES, profile="smoke")
    before = machine.json("claims", "sDigits")["claims"]
    machine.run("ledger", "hide", *names(machine))
    after = machine.json("claims", "sDigits")["claims"]
    judged = [claim for claim in after if claim["here"]["verdict"] in ("supported", "contradicted", "undecided")]
    assert judged
    assert all(claim["here"]["detail"].endswith("; by the hidden instance sDigits-smoke") for claim in judged)
    # which is no reason why others are not judged
    reasons = [line for line in machine.run("claims", "sDigits").stdout.splitlines() if line.startswith("Not judged:")]
    assert reasons
    assert not [line for line in reasons if "hidden" in line]
    assert [claim["here"]["verdict"] for claim in after] == [claim["here"]["verdict"] for claim in before]


@on_file
def test_tables_of_all_tasks_leave_hidden_instances_out_and_say_so(machine: Machine) -> None:
    plain, smoke, _ = names(machine)
    assert [column["profile"] for column in machine.json("report", "--all")["columns"]] == [None, "smoke"]
    machine.run("ledger", "hide", smoke)
    report = machine.json("report", "--all")
    assert [column["profile"] for column in report["columns"]] == [None]
    assert f"left out, because they are hidden: {smoke}" in str(report["notes"])
    machine.run("plot", "--kind", "map", "--out", "map.svg")
    drawn = " ".join((machine.folder / "map.svg").read_text().split())
    assert "they are hidden: " in drawn, "its note says so"
    machine.run("ledger", "hide", "--where", "task=sDigits")
    said = machine.run("report", "--all", code=4).stderr
    assert said == (
        "error: ladder lru, without --tune: on no task of this ledger\n"
        f"hint: hidden: {plain}; {smoke}; {names(machine)[2]}; lrurun ledger hide NAME --undo shows it again\n"
    )


@on_file
def test_the_latest_instance_is_one_that_is_shown(machine: Machine) -> None:
    plain, smoke, fast = names(machine)
    assert f"the latest instance: --instance {fast};" in machine.run("report").stderr
    machine.run("ledger", "hide", fast)
    assert f"the latest instance: --instance {smoke};" in machine.run("report").stderr
    machine.run("ledger", "hide", plain, smoke)
    said = machine.run("report", code=4).stderr
    problem = "hint: every instance with runs in ledger.db is hidden; lrurun status --hidden lists them\n"
    assert said == f"error: expected a TASK, --instance or --all\n{problem}"


@on_file
def test_resume_leaves_hidden_ladders_alone(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as ledger:
        smoke = names(machine)[1]
        ledger.enqueue(ledger.ladder(smoke).key, [want()])
    machine.run("ledger", "hide", smoke)
    result = machine.run("resume")
    assert (result.stdout + result.stderr).startswith(
        "left alone: 1 hidden ladder; lrurun status --hidden shows them, and --instance NAME continues one\n"
        "nothing to do: every other ladder of this ledger is finished\n"
    )
    said = machine.run("resume", "--instance", smoke, code=2).stderr
    assert said.startswith(f"error: ladder {smoke}: the command that began it is not recorded")


@on_file
def test_a_command_that_trains_a_hidden_instance_says_so(machine: Machine) -> None:
    _, smoke, _ = names(machine)
    machine.run("ledger", "hide", smoke)
    ladder = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--seeds", "2")
    result = machine.run(*ladder)
    line = f"instance {smoke} is hidden: lists leave it out; lrurun ledger hide {smoke} --undo shows it again"
    assert line in result.stdout + result.stderr
    machine.run("ledger", "hide", smoke, "--undo")
    result = machine.run(*ladder)
    assert "hidden" not in result.stdout + result.stderr


# Several users


@pytest.fixture
def shared(tmp_path: Path, postgres: PrivateServer) -> Iterator[Machine]:
    machine = Machine(tmp_path / "shared").use(postgres.ledger())
    fill(machine.ledger, "sDigits", SCORES)
    fill(machine.ledger, "sDigits", SCORES, profile="smoke")
    raw(machine.ledger, "UPDATE ladders SET user_name = 'ann' WHERE profile IS NULL")
    yield machine
    postgres.drop(machine.ledger)


@pytest.mark.slow
def test_on_a_server_only_ones_own_instances_are_hidden(shared: Machine) -> None:
    plain, smoke = names(shared)
    said = shared.run("ledger", "hide", smoke, plain, code=1).stderr
    assert said == f"error: instance {plain}: belongs to ann\nhint: ask them first; with --all-users, it is done\n"
    assert hidden(shared) == []
    left_alone = f"left alone: {plain} of ann; --all-users takes these too\n"
    assert done(shared, "--where", "task=sDigits") == (f"hidden: {smoke}\n", left_alone)
    assert done(shared, "--where", "task=sDigits", "--all-users") == (f"hidden: {plain}\nhidden already: {smoke}\n", "")
    assert shared.run("ledger", "hide", plain, "--undo", code=1).stderr.startswith(
        f"error: instance {plain}: belongs to"
    )
    assert done(shared, plain, "--undo", "--all-users") == (f"shown again: {plain}\n", "")


@pytest.mark.slow
def test_a_role_that_may_only_read_hides_nothing(shared: Machine, postgres: PrivateServer) -> None:
    postgres.admin("CREATE ROLE onlooker LOGIN")
    server: Any = shared.ledger
    try:
        raw(server, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO onlooker")
        shared.use(Server(server.text.replace("lrurun@", "onlooker@")))
        said = shared.run("ledger", "hide", "sDigits", "--all-users", code=1).stderr
        assert "onlooker" in said
        assert "it lacks INSERT on hidden, DELETE on hidden" in said
        shared.use(server)
        assert hidden(shared) == []
    finally:
        raw(server, "REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM onlooker")
        postgres.admin("DROP ROLE onlooker")


@pytest.mark.slow
def test_two_users_hide_one_instance_at_once(shared: Machine) -> None:
    processes = [shared.start("ledger", "hide", "sDigits-smoke") for _ in range(4)]
    outputs = sorted(process.communicate(timeout=120)[0] for process in processes)
    assert outputs == ["hidden already: sDigits-smoke\n"] * 3 + ["hidden: sDigits-smoke\n"]
    assert raw(shared.ledger, "SELECT count(*) FROM hidden") == [(1,)]
