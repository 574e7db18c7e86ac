"""Hostile YAML for a process of its own: known payloads and random texts, each timed, the memory of all measured.

The last line that `python -m tests.playbooks.hostile payloads` or `... fuzz FIRST COUNT` prints is JSON.
"""

import json
import random
import resource
import string
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.tools.catalog import CATALOG


def alias_bomb(width: int, levels: int) -> str:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


def merges(times: int, keys: int) -> str:
    wide = ", ".join(f"k{n}: 1" for n in range(keys))
    return f"a: &a {{{wide}}}\n" + "\n".join(f"m{n}: {{<<: *a}}" for n in range(times))


PAYLOADS: dict[str, Callable[[], str]] = {
    "flow 50,000 deep": lambda: "[" * 50_000 + "]" * 50_000,
    "flow maps 50,000 deep": lambda: "{a: " * 50_000 + "}" * 50_000,
    "block 50,000 deep": lambda: "- " * 50_000 + "x",
    "indented 2,000 deep": lambda: "\n".join(" " * n + "a:" for n in range(1_400)),
    "an open bracket, a million times": lambda: "[" * (1 << 20),
    "explicit keys 50,000 deep": lambda: "? " * 50_000,
    "a small bomb of aliases": lambda: alias_bomb(9, 9),
    "a bomb of aliases": lambda: alias_bomb(9, 12),
    "a wide bomb of aliases": lambda: alias_bomb(90, 3),
    "merge keys": lambda: merges(50, 2_000),
    "a list in itself": lambda: "&a [*a]",
    "a map in itself": lambda: "&a {b: *a}",
    "many anchors": lambda: "\n".join(f"a{n}: &a{n} 1" for n in range(50_000)),
    "many directives": lambda: "%TAG !a! tag:x\n" * 60_000 + "---\na: 1",
    "many directives behind the end": lambda: "a: 1\n...\n" + "".join(f"%TAG !a{n}! t:x\n" for n in range(50_000)),
    "a tag": lambda: "a: !!python/object/apply:os.system ['echo hello']",
    "a long number": lambda: "a: " + "9" * 1_000_000,
    "a long fraction": lambda: "a: 0." + "9" * 1_000_000 + "e9999999999",
    "a long key": lambda: "a" * 1_000_000 + ": 1",
    "a long text": lambda: "a: '" + "x" * 1_000_000 + "'",
    "a long quote that is not closed": lambda: 'a: "' + "x\n" * 500_000,
    "a million commas": lambda: "[" + "," * 1_000_000,
    "half a million values": lambda: "[" + "1," * 500_000 + "]",
    "a million dashes": lambda: "-" * 1_000_000,
    "many lines of one key": lambda: "a: 1\n" * 200_000,
    "many documents": lambda: "---\n" * 250_000,
    "many comments": lambda: "# x\n" * 250_000,
    "many escapes": lambda: 'a: "' + "\\x41" * 200_000 + '"',
    "nothing but colons": lambda: ":" * 1_000_000,
    "many blanks": lambda: " " * 1_000_000 + "a",
    "many tabs": lambda: "\t" * 1_000_000 + "a",
    "a folded text of many lines": lambda: "a: >\n" + "  x\n\n" * 100_000,
    "simple keys that are none": lambda: "\n".join("a" * 900 for _ in range(1_000)),
    "unknown keys": lambda: GOOD + "".join(f"x{n}: 1\n" for n in range(40_000)),
    "unknown steps": lambda: GOOD + "".join(f"  - {{step: s{n}, next: t{n}}}\n" for n in range(9_000)),
    "a long chain": lambda: GOOD + "".join(f"  - {{step: s{n}, next: s{n + 1}}}\n" for n in range(8_000)),
    "a template without end": lambda: GOOD + '    when: "{{ ' + "(" * 200_000 + '"\n',
    "a million braces": lambda: GOOD + "    desc: '" + "{{" * 100_000 + "'\n    input: {x: '" + "{{" * 100_000 + "'}\n",
    "python too deep": lambda: GOOD + "    tool: {kind: python, code: '" + "(" * 100_000 + "'}\n",
}

GOOD = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: good}
workload: {rows: [1, 2, 3], n: 0x1F}
workflow:
  - step: first
    desc: "quoted \\u00e9" # a comment
    loop: {in: "{{ rows }}", iterator: row, max_in_flight: 4, key: "{{ row }}", order: {after: []}, tolerate: 1%}
    tool:
      kind: python
      code: |
        x = row + 1
        return {"x": x}
    retry: &r {attempts: 3, backoff: exponential, delay: 250ms}
    set: {ctx.n: "{{ output.data.results | length }}"}
    next:
      arcs:
        - {step: first, when: "{{ ctx.n > 3 and visit < 2 }}"}
        - step: second
  - step: second
    retry: *r
    when: >-
      {{ ctx.n
      == 3 }}
    tool: {kind: http, url: 'http://example.org/{{ n }}', timeout: 1m}
"""
SOUP = [*string.punctuation, *"ab01 \n\t", "\n  ", "\n    ", "- ", ": ", "{{ ", " }}", "&a ", "*a", "<<: ", "!!str "]
SOUP += ["|\n", ">-\n", "---\n", "...\n", "%TAG ", "\r\n", "\u2028", "é", "日", "\U0001f600", "\x00", "\x85", "\ufeff"]
SOUP += [
    "null",
    "0x",
    ".inf",
    "1e999",
    "step: ",
    "next: ",
    "when: ",
    "tool: ",
    "kind: ",
    "workflow:\n",
    "set: ",
    "in: ",
]


def fuzzed(seed: int) -> str:
    """Random text: soup, a good playbook with slips, or pieces of it in another order."""
    chance = random.Random(seed)
    kind = chance.random()
    if kind < 0.3:
        return "".join(chance.choices(SOUP, k=chance.randint(0, 80)))
    text = GOOD
    if kind > 0.9:
        lines = text.splitlines(keepends=True)
        return "".join(chance.choices(lines, k=chance.randint(1, 60)))
    for _ in range(chance.choice([1, 1, 2, 3, 8])):
        at = chance.randrange(len(text) + 1)
        until = min(len(text), at + chance.choice([0, 0, 1, 1, 2, 5, 40]))
        text = text[:at] + chance.choice(["", *SOUP, text[at:until] * 2]) + text[until:]
    return text


def judge(text: str) -> tuple[str, float]:
    """What came of reading it, and how long that took; anything but a playbook or a refusal is raised."""
    began = time.process_time()
    try:
        read(text, "fuzz.yaml", CATALOG)
        came = "accepted"
    except InvalidPlaybook as refused:
        came = "refused"
        assert refused.problems and all(each.place >= (1, 1) and each.hint for each in refused.problems)
        assert str(refused)
    return came, time.process_time() - began


def main(kind: str, first: int = 0, count: int = 0) -> None:
    """Says before each payload, and each thousand random texts, what comes, so that a crash has a name."""
    judge(GOOD)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seeds = range(first, first + count)
    named: Iterable[tuple[str, Callable[[], str]]]
    named = PAYLOADS.items() if kind == "payloads" else ((f"seed {seed}", partial(fuzzed, seed)) for seed in seeds)
    counts = {"accepted": 0, "refused": 0}
    slowest = ("", 0.0)
    for number, (name, text) in enumerate(named):
        if kind == "payloads" or not number % 1000:
            print(name, flush=True)
        came, took = judge(text())
        counts[came] += 1
        slowest = max(slowest, (name, took), key=lambda each: each[1])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({**counts, "slowest": slowest[0], "seconds": slowest[1], "megabytes": grown / 1024}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
