"""Measures `refold ui` on a large file: `python -m bench.page_on_file`.

It makes a file of copies of one run, starts the command, and prints how long it takes from the start of the process
until a browser, which is open already, shows the first rows.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
from msgspec import json, structs
from playwright.async_api import Browser, async_playwright, expect

from refold.core.read.summary import Summary
from refold.stores.sqlite.rows import run_row, seal
from tests.page import browser as browsers
from web.build_page import ROOT, build

PLAYBOOK = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: big}
workload: {text: ""}
workflow:
  - step: one
    tool: {kind: noop, result: "{{ workload.text }}"}
    next: two
  - step: two
    tool: {kind: noop, result: 1}
"""
REFOLD = (sys.executable, "-m", "refold.cli")
APART = 1_000_000  # microseconds between the starts of two runs
TOGETHER = 5000  # runs of one transaction
BOUND = 1.5  # seconds


async def make(folder: Path, runs: int, letters: int) -> Path:
    """A database with copies of one run, each with its own id and its own time of start."""
    (folder / "big.yaml").write_text(PLAYBOOK)
    more = ("-i", f"text={'x' * letters}", "--quiet", "--db", "big.db")
    one = await asyncio.create_subprocess_exec(
        *REFOLD, "run", "big.yaml", *more, cwd=folder, stdout=asyncio.subprocess.DEVNULL
    )
    assert await one.wait() == 0
    path = folder / "big.db"
    file = apsw.Connection(str(path))
    try:
        file.pragma("synchronous", 0)
        (data,) = next(file.execute("select summary from runs"))
        first = json.decode(data, type=Summary)
        facts = list(file.execute("select number, at, kind, data from facts order by number"))
        for begin in range(1, runs, TOGETHER):
            with file:
                for number in range(begin, min(begin + TOGETHER, runs)):
                    copied = copy_of(first, number)
                    file.execute("insert into runs values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row_of(copied, number))
                    file.executemany("insert into facts values (?, ?, ?, ?, ?, ?, ?, ?)", facts_of(copied, facts))
    finally:
        file.close()
    return path


def copy_of(first: Summary, number: int) -> Summary:
    return structs.replace(
        first,
        run=f"{number:032x}",
        name=f"copy-{number}",
        created_at=first.created_at - number * APART,
        ended_at=first.ended_at - number * APART,
    )


def row_of(copied: Summary, number: int) -> tuple[Any, ...]:
    head, status, created_at, data, mark = run_row(copied.run, copied.seq, copied)
    change = number + 1_000
    return "default", copied.run, head, status, created_at, data, mark, copied.workflow, copied.name, "", change, ""


def facts_of(copied: Summary, facts: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for number, at, kind, data in facts:
        turn = f"{copied.run}{number}" if number == 1 else None
        yield "default", copied.run, number, at, kind, data, turn, seal((copied.run, number, at, data, turn))


async def first_rows(browser: Browser, path: Path) -> tuple[float, float]:
    """Seconds from the start of the command to its link, and to the rows."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *REFOLD, "ui", str(path), "--no-open", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        while "#ticket=" not in (line := (await process.stderr.readline()).decode()):
            assert line, "the command has ended"
        linked = time.perf_counter() - began
        await page.goto(line.split()[-1])
        await expect(page.locator("#main")).to_be_visible()  # it has signed in
        await page.evaluate("location.hash = '#/ns/default/runs'")
        await expect(page.locator(".run-row:not(.head)").first).to_be_visible()
        return linked, time.perf_counter() - began
    finally:
        process.terminate()
        await process.wait()
        await context.close()


async def measure(runs: int, letters: int, times: int) -> None:
    build(ROOT)
    found = browsers.find()
    expect.set_options(timeout=120_000)
    with tempfile.TemporaryDirectory() as name:
        path = await make(Path(name), runs, letters)
        print(f"a file of {path.stat().st_size / 1024**3:.2f} GB with {runs:,} runs", flush=True)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=found.program, env={**os.environ, **found.environment}
            )
            for _ in range(times):
                linked, seen = await first_rows(browser, path)
                verdict = "" if seen <= BOUND else ": TOO MUCH"
                print(
                    f"link after {linked:.2f} s, first rows after {seen:.2f} s  (at most {BOUND} s{verdict})",
                    flush=True,
                )
            await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the page on a large file.")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--letters", type=int, default=2000, help="of the text that each run carries, three times")
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    asyncio.run(measure(given.runs, given.letters, given.times))


if __name__ == "__main__":
    main()
