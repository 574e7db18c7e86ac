"""Applies each mutant of mutants.toml to a copy of the tree and demands that its test fails there.

    python tests/run_mutants.py                  all of them
    python tests/run_mutants.py late lease       those whose names contain one of these words
    python tests/run_mutants.py --part 3/20      a sample: every twentieth, beginning with the third

This process imports pytest and the third-party packages once and forks for each test, because a new interpreter would
spend more time on imports than most tests take. It never imports refold: each fork does, from its own copy of the tree.
It starts the PostgreSQL servers that the tests need, for the same reason. Mutants that make their test hang run first,
in more trees: they mostly wait.
"""

import argparse
import compileall
import gc
import importlib
import os
import py_compile
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.postgres_server import server  # noqa: E402

OWN = (str(ROOT), str(ROOT / "tests"))  # on the path of this process alone
COPIED = ("src", "tests", "docs", "web", "pyproject.toml")
PRELOADED = (
    "apsw",
    "click",
    "cryptography.fernet",
    "httpx2",
    "hypothesis.strategies",
    "jsonschema",
    "psycopg_pool",
    "pydantic",
    "pytest",
    "re2",
    "rich.live",
    "yaml",
)
PLUGINS = ("_hypothesis_pytestplugin", "pytest_asyncio.plugin", "pytest_timeout", "refold.testing.plugin")
WORKERS = 2
WAITING = 6  # tests that hang, at a time
CLEAN_LIMIT = 300.0  # seconds
LIMIT, LIMIT_OF_HANGS = 120, 20  # seconds, and ten times what the test takes on the clean tree
LOOK_EVERY = 0.002  # seconds between two looks at the forks


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


class Job(NamedTuple):
    """One run of one test: on the clean tree, or with a mutant applied."""

    test: str
    limit: float
    mutant: Mutant | None = None


class Ran(NamedTuple):
    code: int | None  # None: it ran into the limit
    seconds: float
    output: str


class Tree(NamedTuple):
    """A copy of the source, and the PostgreSQL server of the tests that run in it."""

    path: Path
    postgres: str


class Fork(NamedTuple):
    """A test that is running in a process of its own."""

    job: Job
    tree: Tree
    folder: Path  # of the files that it makes
    original: str  # the text of the file that the mutant changes
    pid: int
    began: float


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


def copy_tree(root: Path, tree: Path) -> Path:
    """With compiled files that hold while the hash of their source does, so that a mutated file is compiled anew."""
    tree.mkdir()
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(root / name, tree / name)
    by_hash = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(tree / "src", quiet=2, invalidation_mode=by_hash)
    return tree


def preload() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()


def run_jobs(jobs: Iterable[Job], trees: Sequence[Tree]) -> Iterator[tuple[Job, Ran]]:
    """Run one test in each tree at a time, and yield each that has ended."""
    waiting, free, running = iter(jobs), list(trees), list[Fork]()
    try:
        while True:
            while free and (job := next(waiting, None)) is not None:
                running.append(start(job, free.pop()))
            if not running:
                return
            for fork in tuple(running):
                if (ran := look_at(fork)) is not None:
                    running.remove(fork)
                    tidy(fork)
                    free.append(fork.tree)
                    yield fork.job, ran
            time.sleep(LOOK_EVERY)
    finally:
        for fork in running:
            end(fork)


def start(job: Job, tree: Tree) -> Fork:
    original = ""
    if job.mutant is not None:
        path = tree.path / job.mutant.file
        original = path.read_text(encoding="utf-8")
        path.write_text(original.replace(job.mutant.old, job.mutant.new), encoding="utf-8")
    folder = Path(tempfile.mkdtemp(dir=tree.path.parent))  # a store on the server of the tree is named after it
    began = time.monotonic()
    if (pid := os.fork()) == 0:
        become_pytest(job, tree.path, folder, tree.postgres)
    return Fork(job, tree, folder, original, pid, began)


def become_pytest(job: Job, tree: Path, folder: Path, postgres: str) -> NoReturn:
    """In the fork: what `python -m pytest` would do in the tree. A hang must show as one, so no test has a timeout."""
    code = 70
    try:
        os.setsid()
        with open(output_of(tree), "wb") as output, open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree / "src")  # comes before the editable install
        os.environ["REFOLD_TEST_POSTGRES_URL"] = postgres
        sys.path[:] = [str(tree / "src"), *(each for each in sys.path if each not in OWN)]
        for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
            del sys.modules[name]  # the helpers come from the copy too
        if job.mutant is not None:
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            sys.dont_write_bytecode = True
        import pytest

        plugins = ["-p", "no:cacheprovider", *(option for name in PLUGINS for option in ("-p", name))]
        quick = ["-x", "-q", "--disable-plugin-autoload", f"--basetemp={folder}", "--timeout=0"]
        code = pytest.main([*shlex.split(job.test), *quick, *plugins])
        refold = sys.modules.get("refold")
        if refold is not None and Path(refold.__path__[0]) != tree / "src" / "refold":
            print("the test has imported another refold than the copy")
            code = 70
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def output_of(tree: Path) -> Path:
    return tree.with_suffix(".txt")


def look_at(fork: Fork) -> Ran | None:
    """None while it goes on; a test that has used up its time is ended here."""
    pid, status = os.waitpid(fork.pid, os.WNOHANG)
    seconds = time.monotonic() - fork.began
    if pid:
        code: int | None = os.waitstatus_to_exitcode(status)
        kill_group(fork)  # what the test has started and left behind
    elif seconds > fork.job.limit:
        code = None
        end(fork)
    else:
        return None
    return Ran(code, seconds, output_of(fork.tree.path).read_text(encoding="utf-8", errors="replace"))


def kill_group(fork: Fork) -> None:
    with suppress(ProcessLookupError):
        os.killpg(fork.pid, signal.SIGKILL)


def end(fork: Fork) -> None:
    kill_group(fork)
    os.kill(fork.pid, signal.SIGKILL)  # it may have been too early for it to have a group
    os.waitpid(fork.pid, 0)


def tidy(fork: Fork) -> None:
    shutil.rmtree(fork.folder, ignore_errors=True)
    if fork.job.mutant is not None:
        (fork.tree.path / fork.job.mutant.file).write_text(fork.original, encoding="utf-8")


def verdict_of(mutant: Mutant, ran: Ran) -> str:
    if ran.code is None:
        return "killed by a hang" if mutant.hang else "HANGS"
    if ran.code == 0:
        return "SURVIVES"
    if ran.code == 1 and "ERROR collecting" not in ran.output:
        return "killed"
    return f"BROKEN, exit code {ran.code}"  # the test never ran, so it proved nothing


def limit_of(mutant: Mutant, clean: float) -> float:
    return (LIMIT_OF_HANGS if mutant.hang else LIMIT) + 10 * clean


def run_clean(tests: Sequence[str], trees: Sequence[Tree]) -> dict[str, float] | None:
    """How long each test takes where nothing is broken, or None if one of them fails there."""
    seconds, passed = dict[str, float](), True
    for job, ran in run_jobs((Job(test, CLEAN_LIMIT) for test in tests), trees):
        seconds[job.test] = ran.seconds
        if ran.code != 0:
            passed = False
            print(f"{job.test} does not pass on the clean tree, exit code {ran.code}\n{ran.output}", flush=True)
    return seconds if passed else None


def run_mutants(mutants: Sequence[Mutant], clean: Mapping[str, float], trees: Sequence[Tree]) -> list[tuple[str, str]]:
    """Print the verdict on each mutant, and return all of them with the names."""
    jobs = (Job(each.test, limit_of(each, clean[each.test]), each) for each in mutants)
    verdicts: list[tuple[str, str]] = []
    for number, (job, ran) in enumerate(run_jobs(jobs, trees), 1):
        assert job.mutant is not None
        verdict = verdict_of(job.mutant, ran)
        print(f"{number:>4} of {len(mutants)} {ran.seconds:6.1f} s  {job.mutant.name}: {verdict}", flush=True)
        if not verdict.startswith("killed"):
            print(ran.output[-2000:], flush=True)
        verdicts.append((job.mutant.name, verdict))
    return verdicts


def check(mutants: Sequence[Mutant], trees: Sequence[Tree]) -> int:
    began = time.monotonic()
    tests = sorted({mutant.test for mutant in mutants})
    print(f"{len(mutants)} mutants, {len(tests)} tests; first every test on the clean tree", flush=True)
    preload()
    clean = run_clean(tests, trees[:WORKERS])
    if clean is None:
        return 1
    print(f"every test passes on the clean tree ({time.monotonic() - began:.0f} s)", flush=True)
    hanging = [each for each in mutants if each.hang]
    verdicts = run_mutants(hanging, clean, trees)
    verdicts += run_mutants([each for each in mutants if not each.hang], clean, trees[:WORKERS])
    alive = sorted((name, verdict) for name, verdict in verdicts if not verdict.startswith("killed"))
    hung = sum(verdict == "killed by a hang" for _, verdict in verdicts)
    seconds = time.monotonic() - began
    print(f"{len(mutants) - len(alive)} of {len(mutants)} mutants killed, {hung} of them by a hang, in {seconds:.0f} s")
    for name, verdict in alive:
        print(f"not killed: {name}: {verdict}")
    return 1 if alive else 0


def read_part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part; write 3/20 for the third of twenty")
    return int(part), int(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Break each guarded line once; its test must fail.")
    parser.add_argument("names", nargs="*", metavar="WORD", help="only mutants whose names contain one of these")
    parser.add_argument(
        "--part", type=read_part, default=(1, 1), metavar="K/N", help="every Nth, beginning with the Kth"
    )
    options = parser.parse_args()
    mutants = [m for m in read_mutants() if not options.names or any(part in m.name for part in options.names)]
    if not mutants:
        print(f"no mutant is named like {' or '.join(options.names)}")
        return 2
    faults = [f"{m.name}: {fault}" for m in mutants if (fault := fault_of(m))]
    if faults:
        print(*faults, sep="\n")
        return 1
    part, parts = options.part
    chosen = mutants[part - 1 :: parts]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="refold-mutants-"))).resolve()
        servers = [stack.enter_context(server()).url for _ in range(WORKERS)]
        count = WAITING if any(each.hang for each in chosen) else WORKERS
        first = copy_tree(ROOT, folder / "tree0")
        paths = [first, *(Path(shutil.copytree(first, folder / f"tree{n}")) for n in range(1, count))]
        return check(chosen, [Tree(path, servers[n % WORKERS]) for n, path in enumerate(paths)])


if __name__ == "__main__":
    sys.exit(main())
