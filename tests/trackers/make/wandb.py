"""Runs as wandb 0.31.0 records them offline and online, and as 0.16.6 did offline, into `files/wandb`. Python 3.11.

Called from the root of the repository: `python -m tests.trackers.make.wandb`. It installs the package into new
environments in a temporary folder, and trains there. Online, the package talks to a server in this process, which
accepts everything and keeps nothing: what it writes into the folder of a run does not depend on answers.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
from pathlib import Path
from typing import Any

FILES = Path(__file__).parents[1] / "files" / "wandb"
VERSION, OLD = "0.31.0", "0.16.6"

BEGIN = """\
import math, os, sys, time
import wandb
settings = wandb.Settings(host="host")
"""

WHOLE = """\
run = wandb.init(project="digits", name="layer-0", id="whole", settings=settings, config={
    "lr": 1e-5, "large": 1e20, "norm": "layer", "n": {"x": 1, "y": [1, 2]}, "n.x": 7, "none": None, "deep": True,
    "octal": "010", "on": "on", "clip": math.inf,
})
run.define_metric("val/acc", summary="max")
for step in range(3):
    run.log({"loss": 1 / (step + 1), "val/acc": 0.3 - 0.1 * step, "deep": {"a": step}, "deep.a": -step}, step=10 * step)
run.log({"text": "hello", "picture": wandb.Histogram([1, 2, 3]), "correct": [1, 0, 1]}, step=20)
run.log({"loss": math.nan, "bound": math.inf}, step=30)
run.log({"loss": 99}, step=25)  # dropped, with a warning
run.log({"extra": 5})  # joins the row of step 30, and closes it
run.log({"late": 6}, step=30)  # dropped, with a warning
run.config.update({"n": {"z": 4}, "added": 3}, allow_val_change=True)
run.summary["best"] = 0.9
run.summary["loss"] = 0.1
run.finish()
"""
CRASHED = """\
run = wandb.init(project="digits", id="crashed", settings=settings, config={"norm": "none"})
run.log({"loss": 2.0}, step=0)
sys.exit(3)
"""
RAISED = """\
run = wandb.init(project="digits", id="raised", settings=settings, config={"norm": "none"})
run.log({"loss": 2.0}, step=0)
raise SystemExit(3)
"""
LONG = """\
run = wandb.init(project="digits", id="long", settings=settings, config={"text": "x" * 40_000})
run.log({"loss": 0.25}, step=7)
run.finish()
"""
KILLED = """\
run = wandb.init(project="digits", id=sys.argv[1], settings=settings, config={"norm": "none"})
run.log({"loss": 4.0}, step=0)
run.log({"loss": 3.0}, step=1)
run.log({"loss": 2.0}, step=2)
open(f"{sys.argv[1]}.begun", "w").close()
time.sleep(120)
"""
RESUMED = """\
run = wandb.init(project="digits", id="resumed", resume="allow", settings=settings, config={"part": int(sys.argv[1])})
for step in range(2):
    run.log({"loss": 1.0 - 0.1 * (2 * int(sys.argv[1]) + step)}, step=2 * int(sys.argv[1]) + step)
if sys.argv[1] == "0":
    raise SystemExit(1)
run.finish()
"""


class Server(http.server.BaseHTTPRequestHandler):
    """Answers as W&B does, as far as the package needs to begin and to end a run."""

    def do_POST(self) -> None:
        request = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        query = json.loads(request) if self.path.endswith("/graphql") else {}
        answer = json.dumps({"data": self._data(query.get("query", ""), query.get("variables", {}))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST

    def _data(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        if "upsertBucket" in query:
            project = {"id": "p", "name": "digits", "entity": {"id": "e", "name": "group"}}
            bucket = {"id": "b", "name": variables.get("name"), "config": variables.get("config"), "project": project}
            return {"upsertBucket": {"bucket": bucket | {"historyLineCount": 0}, "inserted": True}}
        if "createRunFiles" in query:
            url = f"http://{self.headers['Host']}/file"
            files = [{"name": name, "uploadUrl": url} for name in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {}

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def train(python: str, folder: Path, code: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """Starts a training in a folder."""
    known = {"PATH": os.environ["PATH"], "HOME": str(folder), "WANDB_SILENT": "true", "WANDB_MODE": "offline"}
    return subprocess.Popen([python, "-c", BEGIN + code, *arguments], cwd=folder, env=known | environment)


def keep(folder: Path, target: str, *, files: bool = False, log: bool = True) -> None:
    """Copies what readers look at from the one run in a folder, and removes the folder's runs."""
    [run] = [path for path in (folder / "wandb").iterdir() if "run-" in path.name and not path.is_symlink()]
    copy = FILES / target / run.name
    copy.mkdir(parents=True)
    if log:
        shutil.copy(next(run.glob("run-*.wandb")), copy)
    if files:
        (copy / "files").mkdir()
        for name in ("config.yaml", "wandb-summary.json", "wandb-metadata.json"):
            shutil.copy(run / "files" / name, copy / "files")
        metadata = json.loads((copy / "files" / "wandb-metadata.json").read_text())
        kept = {key: metadata[key] for key in ("startedAt", "git", "python") if key in metadata}
        (copy / "files" / "wandb-metadata.json").write_text(json.dumps(kept, indent=2))
    shutil.rmtree(folder / "wandb")


def offline(python: str, folder: Path) -> None:
    for code, target in ((WHOLE, "offline"), (CRASHED, "offline"), (RAISED, "offline"), (LONG, "long")):
        train(python, folder, code).wait()
        time.sleep(3)  # under load the file is not complete yet when finish() has returned
        keep(folder, target)
    for part in "01":
        train(python, folder, RESUMED, part).wait()
        time.sleep(3)
        keep(folder, "resumed")
    for name, seconds in (("soon", 1), ("later", 25)):
        process = train(python, folder, KILLED, name)
        while not (folder / f"{name}.begun").exists():
            time.sleep(0.1)
        time.sleep(seconds)
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        for pid in (process.pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        keep(folder, "killed")


def online(python: str, folder: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    git = ["git", "-c", "user.name=user", "-c", "user.email=user@example.org"]
    subprocess.run([*git, "init", "-q", "."], cwd=folder, check=True)
    date = {"GIT_AUTHOR_DATE": "2026-11-28T00:00Z", "GIT_COMMITTER_DATE": "2026-11-28T00:00Z"}
    subprocess.run([*git, "commit", "-qm", "x", "--allow-empty"], cwd=folder, check=True, env=os.environ | date)
    train(python, folder, WHOLE, WANDB_MODE="online", WANDB_BASE_URL=url, WANDB_API_KEY="0" * 40).wait()
    time.sleep(3)
    keep(folder, "online", files=True)
    server.shutdown()


def main() -> None:
    """Makes the environments, and the files in them."""
    shutil.rmtree(FILES, ignore_errors=True)
    for version in (VERSION, OLD):
        with tempfile.TemporaryDirectory() as folder:
            venv.create(f"{folder}/venv", with_pip=True)
            python = f"{folder}/venv/bin/python"
            packages = [f"wandb=={version}", "numpy<2", "setuptools<82"]
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
            runs = Path(folder) / "runs"
            runs.mkdir()
            if version == VERSION:
                offline(python, runs)
                online(python, runs)
            else:
                train(python, runs, CRASHED).wait()
                keep(runs, "old")


if __name__ == "__main__":
    sys.exit(main())
