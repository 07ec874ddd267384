"""Recorded sessions of the documentation: `python -m tests.docs.transcripts` records them again and updates the pages.

The commands of `docs/output/NAME.sh` run in an empty folder, and what they print is kept in `docs/output/NAME.txt`. The
commands of a script are separated by empty lines. `python -m tests.docs.transcripts NAME ...` records single sessions.
Of `npDigits`, only the answer is kept, for a terminal of 100 columns; it takes a minute where nothing else runs.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docs import generated

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "docs" / "output"
ANSWER = "npDigits"


def commands(name: str) -> list[str]:
    """The commands of a script; a document in one, up to END, may have empty lines."""
    return [
        one.strip("\n") for one in re.findall(r"(?:.*<<END\n(?s:.*?)\nEND|.+)\n", (OUTPUT / f"{name}.sh").read_text())
    ]


def names() -> list[str]:
    """All sessions with commands and what they print."""
    return sorted(path.stem for path in OUTPUT.glob("*.sh"))


def environment(folder: Path, columns: int) -> dict[str, str]:
    """Of commands whose home and data are in `folder`."""
    places = {name: str(folder / "home") for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    env = {name: value for name, value in os.environ.items() if not name.startswith("LRURUN_")} | places
    env |= {"COLUMNS": str(columns), "NO_COLOR": "1", "PYTHONPATH": str(ROOT), "LOGNAME": "ann", "USER": "ann"}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    env.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "home/xla"))
    return env


def run(command: str, folder: Path) -> str:
    """What a command prints, output and errors as they come.

    Raises:
        RuntimeError: it fails.
    """
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder, 110),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout.replace(f"{folder}/", "").replace(str(folder), ".")


def answer(folder: Path) -> str:
    """The answer of `lrurun ladder npDigits`, as a terminal of 100 columns has it."""
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "lrurun", "ladder", "npDigits"]
    text = b""
    with subprocess.Popen(command, cwd=folder, env=environment(folder, 100), stdout=terminal) as process:
        os.close(terminal)
        with contextlib.suppress(OSError), open(master, "rb", buffering=0) as file:  # it ends in an error on Linux
            while part := file.read(4096):
                text += part
    if process.returncode:
        raise RuntimeError(f"lrurun ladder npDigits: exit code {process.returncode}")
    return text.decode().replace("\r\n", "\n").strip("\n") + "\n"


def record(name: str) -> str:
    """The session: every command after a prompt, and what it printed; of the answer, that alone."""
    with tempfile.TemporaryDirectory() as place:
        if name == ANSWER:
            return answer(Path(place).resolve())
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
    for chosen in sys.argv[1:] or [*names(), ANSWER]:
        (OUTPUT / f"{chosen}.txt").write_text(record(chosen))
    generated.write()
