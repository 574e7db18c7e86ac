"""Python workflows beside other engines, on the same workloads in the same minutes: ratios, never absolute times.

`python -m bench.peer_runs [--quick] [--json FILE]`. Each peer has a virtual environment of its own, pinned by its file
in bench/peers/ and made when it is first wanted: in $REFOLD_PEERS_DIR, or in the user's cache. Nobody's imports count,
and everybody's modules are compiled.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "bench" / "peers"
ROUNDS = 5
TITLES = {"w1": "chain", "w2": "fan-out and collect"}


class Peer(Struct, frozen=True):
    name: str
    package: str
    module: str
    wanted: Mapping[str, float]  # per workload: our steps per second beside theirs, at least
    shim: bool = False  # its wheel may want a newer C library

    @property
    def pins(self) -> Path:
        return SCRIPTS / f"{self.name}.txt"

    @property
    def script(self) -> Path:
        return SCRIPTS / f"bench_{self.name}.py"


PEERS = (
    Peer("llamaindex", "llama-index-workflows", "workflows", {"w1": 3.0, "w2": 10.0}),
    Peer("blazen", "blazen", "blazen", {"w1": 0.8, "w2": 0.8}, shim=True),
)


class Side(Struct, frozen=True):
    """Ours beside a peer's: one ratio per round."""

    peer: str
    workload: str
    n: int
    ratios: list[float]
    best: float  # our fastest round beside theirs: what others do on the machine counts least
    wanted: float

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def held(self) -> bool:
        return self.median >= self.wanted


class Place(Struct, frozen=True):
    """Where a peer's interpreter is, and what it needs around it."""

    python: Path
    env: Mapping[str, str]


def home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("REFOLD_PEERS_DIR") or Path(cache) / "refold-peers")


def prepared(peer: Peer, folder: Path) -> Place | str:
    """Its environment, made anew when its pins change; or why it cannot be had here."""
    venv = folder / peer.name
    python, made_from = venv / "bin" / "python", venv / "pins.txt"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PERF_ROOT"] = str(folder)
    if not made_from.exists() or made_from.read_text() != peer.pins.read_text():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        install = ["-m", "pip", "install", "-qq", "--disable-pip-version-check", "--only-binary", ":all:"]
        wanted = ["--constraint", str(peer.pins), peer.package, "psutil"]
        done = subprocess.run([python, *install, *wanted], capture_output=True)
        if done.returncode:
            return f"{peer.package} cannot be installed here: {_last_line(done.stderr)}"
        made_from.write_text(peer.pins.read_text())
    error = _fails_to_import(python, peer.module, env)
    if error and peer.shim:
        env["LD_PRELOAD"] = str(_newer_names(folder))
        error = _fails_to_import(python, peer.module, env)
    return f"{peer.package} does not run here: {error}" if error else Place(python, env)


def _fails_to_import(python: Path, module: str, env: Mapping[str, str]) -> str:
    done = subprocess.run([python, "-c", f"import {module}"], env=env, capture_output=True)
    return _last_line(done.stderr) if done.returncode else ""


def _newer_names(folder: Path) -> Path:
    """For a wheel that was built against a newer C library than ours; without a compiler there is none."""
    library = folder / "isoc23.so"
    if not library.exists() and shutil.which("cc"):
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, SCRIPTS / "isoc23.c"], check=True)
    return library


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it does not say why"


def rate(command: list[str | Path], env: Mapping[str, str], folder: Path) -> float:
    """Steps per second, as a script tells them in its last line; how it ends after that is its own affair."""
    done = subprocess.run(command, env=env, cwd=folder, check=False, capture_output=True)
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise SystemExit(f"{command[1]} told nothing: {_last_line(done.stderr)}")
    told: dict[str, Any] = msgspec.json.decode(lines[-1])
    return float(told["n"] / told["seconds"])


def ours(workload: str, n: int) -> float:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command: list[str | Path] = [sys.executable, "-m", "bench.python_workflows", "--line", workload, "--n", str(n)]
    return rate(command, env, ROOT)


def theirs(peer: Peer, place: Place, workload: str, n: int) -> float:
    return rate([place.python, peer.script, workload, "--n", str(n)], place.env, SCRIPTS)


def sides(places: Mapping[str, Place], rounds: int, n: int) -> Iterator[Side]:
    """Interleaved: ours, theirs, ours, theirs."""
    for workload in TITLES:
        for peer in PEERS:
            if peer.name in places:
                ours(workload, 10)  # compiles what is not compiled yet
                place = places[peer.name]
                pairs = [(ours(workload, n), theirs(peer, place, workload, n)) for _ in range(rounds)]
                best = max(own for own, _ in pairs) / max(other for _, other in pairs)
                ratios = [round(own / other, 2) for own, other in pairs]
                yield Side(peer.name, workload, n, ratios, round(best, 2), peer.wanted[workload])


def show(side: Side) -> None:
    told = f"{side.median:8.2f}   {min(side.ratios):6.2f} to {max(side.ratios):6.2f}   {side.best:6.2f}"
    told += f"   >= {side.wanted:g} x"
    print(f"{TITLES[side.workload]:22} {side.peer:12} {told}{'' if side.held else '   MISSED'}", flush=True)


class Results(Struct):
    sides: list[Side]
    absent: list[str]


def measure(quick: bool) -> Results:
    places: dict[str, Place] = {}
    results = Results([], [])
    for peer in PEERS:
        found = prepared(peer, home())
        if isinstance(found, str):
            results.absent.append(found)
            print(found)
        else:
            places[peer.name] = found
    print("our steps per second beside theirs, both in memory: median of the rounds, their range, fastest of each")
    for side in sides(places, 1 if quick else ROUNDS, 100 if quick else 1000):
        results.sides.append(side)
        show(side)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peer_runs", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of every size, once; too little to judge by")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    results = measure(options.quick)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2))
    return 1 if any(not each.held for each in results.sides) and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
