"""A newcomer's first hour, for real: a fresh clone, the README's two commands, its playbook, a kill -9, and on."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"{what} ...", flush=True)
    yield
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def run(folder: Path, *command: str) -> str:
    """As in a new shell: nothing of this environment is on its path."""
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if ".venv" not in each)
    kept = {name: os.environ[name] for name in os.environ if not name.startswith(("VIRTUAL_ENV", "PYTHON", "REFOLD"))}
    done = subprocess.run(command, cwd=folder, env={**kept, "PATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def typed_from_the_readme(readme: str, folder: Path) -> str:
    found = re.search(r"```yaml\n# (\S+)\n(.*?)```", readme, re.S)
    assert found is not None
    (folder / found[1]).write_text(found[2])
    return found[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        clone, desk = Path(place) / "refold", Path(place) / "desk"
        desk.mkdir()
        with timed("git clone"):
            run(Path(place), "git", "clone", "-q", str(ROOT), str(clone))
        with timed("make demo"):
            assert "0 were read again" in run(clone, "make", "demo")
        with timed("make test"):
            assert " passed" in run(clone, "make", "test")
        refold = str(clone / ".venv" / "bin" / "refold")
        with timed("a playbook from the README, killed and resumed"):
            name = typed_from_the_readme((clone / "README.md").read_text(), desk)
            engine = subprocess.Popen([refold, "run", name, "--name", "hi"], cwd=desk, stderr=subprocess.DEVNULL)
            time.sleep(2.5)
            engine.kill()
            engine.wait()
            assert run(desk, refold, "runs", "resume", "hi").strip() == "3 people greeted"
            history = run(desk, refold, "runs", "history", "hi")
            assert [history.count(f"item {n} succeeded") for n in range(3)] == [1, 1, 1]
    print("a newcomer would be content")


if __name__ == "__main__":
    main()
