"""The demo: a playbook is killed half-way with SIGKILL, resumed, and repeats nothing that was finished."""

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
WORK = HERE.parents[1] / "build" / "demo"
REFOLD = (sys.executable, "-m", "refold.cli")
ENOUGH = 5  # files, before the engine dies


def say(text: str) -> None:
    print(f"\n# {text}", flush=True)


def command(*arguments: str) -> tuple[str, ...]:
    shown = " ".join(each.replace(str(WORK), "build/demo") for each in arguments)
    print(f"$ refold {shown}", flush=True)
    return (*REFOLD, *arguments)


def refold(*arguments: str) -> None:
    subprocess.run(command(*arguments), cwd=HERE, check=True)


def loaded() -> list[str]:
    trace = WORK / "loaded.txt"
    return trace.read_text().split() if trace.exists() else []


def kill_half_way(db: str) -> list[str]:
    """Start the run, wait until some files are loaded, and SIGKILL its process; returns the files."""
    inputs = ("-i", f"out={WORK}", "--name", "demo", "--db", db)
    engine = subprocess.Popen(command("run", "orders.yaml", *inputs), cwd=HERE)
    deadline = time.monotonic() + 60
    while len(loaded()) < ENOUGH:
        if engine.poll() is not None or time.monotonic() > deadline:
            engine.kill()
            sys.exit("the run ended before it could be killed")
        time.sleep(0.01)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    return loaded()


def finished(db: str) -> set[str]:
    """Return the files that the log had recorded as loaded when the engine died."""
    history = subprocess.run(
        (*REFOLD, "runs", "history", "demo", "--db", db), capture_output=True, text=True, check=True
    )
    months = sorted(path.stem for path in (HERE / "files").glob("*.csv"))
    settled = [word for line in history.stdout.splitlines() if "load/1" in line for word in line.split(";")]
    items = [each.split("item ")[1].split()[0] for each in settled if "item " in each and "succeeded" in each]
    return {months[int(item)] for item in items}


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    db = str(WORK / "refold.db")
    say("A playbook reads twelve files, four at once; one of them fails at first.")
    refold("graph", "orders.yaml")
    say("Run it, and kill -9 its process half-way.")
    before = kill_half_way(db)
    done = finished(db)
    print(f"killed. {len(before)} files were read, and {len(done)} of them are in the log as done:")
    refold("runs", "show", "demo", "--db", db)
    say("Nothing has to be repaired. Resume the run:")
    refold("runs", "resume", "demo", "--db", db)
    say("What happened, according to the log:")
    refold("runs", "history", "demo", "--db", db)
    refold("runs", "show", "demo", "--graph", "--db", db)
    say("The report:")
    print((WORK / "report.txt").read_text(), end="")
    times = Counter(loaded())
    again = sorted(month for month in done if times[month] > 1)
    say(f"{len(times)} files were read; of the {len(done)} done before the kill, {len(again)} were read again.")
    if again or len(times) != 12:
        sys.exit(f"this must not happen: {again}")
    print("Look around: .venv/bin/refold runs list --db build/demo/refold.db")


if __name__ == "__main__":
    main()
