"""Recorded sessions in the documentation: `python -m tests.transcripts NAME` runs the commands of `docs/output/NAME.sh`
in an empty folder, and writes what they print to `docs/output/NAME.txt`.

The commands of a script are separated by empty lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "docs" / "output"


def commands(name: str) -> list[str]:
    """The commands of a script; a document in one, up to END, may have empty lines."""
    return [
        one.strip("\n") for one in re.findall(r"(?:.*<<END\n(?s:.*?)\nEND|.+)\n", (OUTPUT / f"{name}.sh").read_text())
    ]


def run(command: str, folder: Path) -> str:
    """What a command prints, output and errors as they come.

    Raises:
        subprocess.CalledProcessError: it fails.
    """
    places = {name: str(folder / "home") for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    env = {name: value for name, value in os.environ.items() if not name.startswith("LRURUN_")} | places
    env |= {"COLUMNS": "110", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    env.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "home/xla"))
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout.replace(f"{folder}/", "").replace(str(folder), ".")


def record(name: str) -> str:
    """The session: every command after a prompt, and what it printed."""
    with tempfile.TemporaryDirectory() as place:
        said = [(command, run(command, Path(place).resolve())) for command in commands(name)]
    return "\n".join(f"$ {command}\n{text}" for command, text in said)


def recorded(name: str) -> dict[str, str]:
    """Command -> what it printed, of the recorded session."""
    parts = re.split(r"^\$ ", (OUTPUT / f"{name}.txt").read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for command in commands(name):
        [part] = [part for part in parts if part.startswith(f"{command}\n")]
        found[command] = part.removeprefix(f"{command}\n").rstrip("\n")
    assert len(found) == len(parts)
    return found


if __name__ == "__main__":
    [chosen] = sys.argv[1:]
    (OUTPUT / f"{chosen}.txt").write_text(record(chosen))
