"""Applies each mutant of mutants.toml to a copy of the tree and demands that its test fails there."""

import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "docs", "pyproject.toml")
WORKERS = 2
CLEAN_LIMIT = 600.0


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    file: str
    old: str
    new: str
    test: str
    why: str = ""
    hang: bool = False


class MutantFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mutant: tuple[Mutant, ...] = ()


class Ran(NamedTuple):
    code: int | None  # None: it ran into the limit
    seconds: float
    output: str


class Verdict(NamedTuple):
    name: str
    result: str
    seconds: float
    output: str

    @property
    def killed(self) -> bool:
        return self.result.startswith("killed")


def read_mutants(root: Path = ROOT) -> tuple[Mutant, ...]:
    return msgspec.toml.decode((root / "tests" / "mutants.toml").read_bytes(), type=MutantFile).mutant


def fault_of(mutant: Mutant, root: Path = ROOT) -> str | None:
    """What makes this entry meaningless, or None if it can be applied."""
    if not (root / mutant.file).is_file():
        return f"no such file: {mutant.file}"
    if (found := (root / mutant.file).read_text(encoding="utf-8").count(mutant.old)) != 1:
        return f"`old` occurs {found} times in {mutant.file}"
    if mutant.old == mutant.new:
        return "`new` changes nothing"
    path, _, node = shlex.split(mutant.test)[0].partition("::")
    if not (root / path).is_file():
        return f"no such test file: {path}"
    last = node.split("::")[-1].split("[")[0]
    if last and f" {last}(" not in (root / path).read_text(encoding="utf-8"):
        return f"no such test in {path}: {last}"
    return None


def run_test(tree: Path, test: str, limit: float) -> Ran:
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),  # comes before the editable install
        "PYTHONDONTWRITEBYTECODE": "1",  # a cached file of the same size and second would hide the mutant
    }
    options = ("-x", "-q", "-p", "no:cacheprovider", "--timeout=0")  # a hang must show as one, not as a failure
    command = [sys.executable, "-m", "pytest", *shlex.split(test), *options]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the group: the test may have started processes of its own
                process.wait()
        output.seek(0)
        return Ran(code, time.monotonic() - began, output.read())


def judge(mutant: Mutant, ran: Ran) -> Verdict:
    if ran.code is None:
        result = "killed (hang)" if mutant.hang else "HANGS"
    elif ran.code == 0:
        result = "SURVIVED"
    elif ran.code == 1 and "ERROR collecting" not in ran.output:
        result = "killed"
    else:
        result = f"BROKEN (exit code {ran.code})"  # the test never ran, so it proved nothing
    return Verdict(mutant.name, result, ran.seconds, ran.output)


@contextmanager
def applied(mutant: Mutant, tree: Path) -> Iterator[None]:
    path = tree / mutant.file
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(source, encoding="utf-8")


class Trees:
    """One copy of the tree per worker, lent out to one test at a time."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(WORKERS):
            tree = folder / f"tree{number}"
            copy_tree(root, tree)
            self._free.put(tree)

    @contextmanager
    def lend(self) -> Iterator[Path]:
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)

    def run_clean(self, test: str) -> Ran:
        with self.lend() as tree:
            return run_test(tree, test, CLEAN_LIMIT)

    def run_mutant(self, mutant: Mutant, clean: Ran) -> Verdict:
        with self.lend() as tree, applied(mutant, tree):
            return judge(mutant, run_test(tree, mutant.test, (30 if mutant.hang else 120) + 10 * clean.seconds))


def copy_tree(root: Path, tree: Path) -> None:
    tree.mkdir()
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(root / name, tree / name)


def imports_the_copy(tree: Path) -> bool:
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", "import refold; print(list(refold.__path__)[0])"]
    found = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True).stdout
    return Path(found.strip()) == tree / "src" / "refold"


def main(wanted: Sequence[str]) -> int:
    mutants = [m for m in read_mutants() if not wanted or any(part in m.name for part in wanted)]
    if wanted and not mutants:
        print(f"no mutant is named like {' or '.join(wanted)}")
        return 2
    faults = [f"{m.name}: {fault}" for m in mutants if (fault := fault_of(m))]
    if faults:
        print(*faults, sep="\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="refold-mutants-") as folder, ThreadPoolExecutor(WORKERS) as pool:
        return hunt(mutants, Trees(Path(folder).resolve()), pool)


def hunt(mutants: Sequence[Mutant], trees: Trees, pool: ThreadPoolExecutor) -> int:
    with trees.lend() as tree:
        if not imports_the_copy(tree):
            print("the tests would import another refold than the copy that is mutated")
            return 1
    tests = sorted({mutant.test for mutant in mutants})
    clean = dict(zip(tests, pool.map(trees.run_clean, tests), strict=True))
    failing = {test: ran for test, ran in clean.items() if ran.code != 0}
    for test, ran in failing.items():
        print(f"{test} does not pass on the clean tree (exit code {ran.code})\n{ran.output}")
    if failing:
        return 1
    width = max((len(mutant.name) for mutant in mutants), default=0)
    verdicts = []
    for verdict in pool.map(lambda mutant: trees.run_mutant(mutant, clean[mutant.test]), mutants):
        print(f"{verdict.name:<{width}}  {verdict.seconds:5.1f} s  {verdict.result}", flush=True)
        verdicts.append(verdict)
    alive = [verdict for verdict in verdicts if not verdict.killed]
    for verdict in alive:
        print(f"\n{verdict.name}: {verdict.result}\n{verdict.output[-2000:]}")
    print(f"{len(verdicts) - len(alive)} of {len(verdicts)} mutants killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
