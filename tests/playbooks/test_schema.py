"""The JSON Schema accepts what the reader accepts, and refuses what is shaped otherwise."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from docs.build.playbook_page import examples
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.playbooks.schema import schema
from refold.playbooks.yaml.text import read as read_yaml
from refold.sources.catalog import CATALOG as SOURCES
from refold.tools.catalog import CATALOG
from tests.playbooks.test_broken import FILES
from tests.playbooks.test_checks import GOOD, WARNED
from tests.playbooks.test_playbook import BODIES, HEAD, NEXTS

SCHEMA = schema(CATALOG, SOURCES)
VALIDATOR = Draft202012Validator(SCHEMA)


def with_keys(body: str) -> str:
    return "workflow:\n  - step: a\n" + "".join(f"    {line}\n" for line in body.splitlines())


STEPS = [with_keys(body) for body, _ in (*BODIES.values(), *NEXTS.values())]
TEXTS = [HEAD + text for text in (*STEPS, *GOOD.values(), *(text for text, _ in WARNED.values()))]

# What only the reader can know: YAML itself, names, graphs, templates, and what tools find in their texts.
BEYOND = re.compile(
    "yaml_|template|unknown_(name|input|step_result|ctx|step_in|finalizer|entry)|endless|unreach|join_(above|of)"
    "|finalizer|gate_|poll_(of|reads)"
    "|duplicate|python|wait_|output_|item_|event_|reserved|condition_with_text|loop_over_a_wait|bad_duration"
    "|rule_empty|task_(jump|set|twice)"
)


def errors(data: Any) -> list[str]:
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in VALIDATOR.iter_errors(data)]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("text", TEXTS)
def test_what_the_reader_accepts_the_schema_accepts(text: str) -> None:
    assert errors(read_yaml(text, "f").value) == []


@pytest.mark.parametrize("file", [file for file in FILES if not BEYOND.search(file.stem)], ids=lambda file: file.stem)
def test_what_is_shaped_otherwise_the_schema_refuses(file: Path) -> None:
    assert errors(read_yaml(file.read_text(), "f").value) != []


def test_every_example_of_a_key_is_one() -> None:
    for table, example in examples():
        (key, value), *_ = read_yaml(example, "f").value.items()
        place = SCHEMA if table == "playbook" else SCHEMA["$defs"][table]
        found = Draft202012Validator({**place["properties"][key], "$defs": SCHEMA["$defs"]})
        assert [each.message for each in found.iter_errors(value)] == [], example


def test_every_kind_of_tool_is_described() -> None:
    assert all(f"tool.{kind}" in SCHEMA["$defs"] for kind in CATALOG)
    assert SCHEMA["$defs"]["tool"]["properties"]["kind"]["enum"] == list(CATALOG)
    for info in CATALOG.values():
        assert {key.name for key in info.keys} <= SCHEMA["$defs"][f"tool.{info.kind}"]["properties"].keys()


TEXTUAL = ("", "x", "a", "30s", "P1D", "{{ 1 }}", " {{ 1 }} ", "{{ 1 }}{{ 2 }}")
ODD: tuple[Any, ...] = (None, True, 0, -1, 2.5, [], ["b"], {}, {"x": 1}, *TEXTUAL)
RICH = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: rich, labels: {a: 1}, tags: [x], version: 1}
workload: {n: 1}
executor: {spec: {entry_step: a, final_step: z}}
on_failure: drain
on_fail: [y]
timeout: 1h
workflow:
  - step: a
    when: "{{ n }}"
    input: {x: 1}
    loop: {in: [1], iterator: row, spec: {mode: parallel, max_in_flight: 2}, tolerate: 1%, min_success: 1}
    tool: {kind: http, url: "http://x.test", timeout: 3s, headers: {a: b}, expect: [200], response: json}
    set: {ctx.a: 1}
    next: {spec: {mode: inclusive}, arcs: [{step: b, when: true, on: both, set: {ctx.b: 1}, each_pass: false}]}
    retry: {attempts: 2, backoff: linear, delay: 1s, max_delay: 2s, jitter: 0.5}
    timeout: 2
    visit_limit: 3
    queue: q
    priority: 1
  - {step: b, tool: {kind: wait, seconds: 1}, join: {at_least: 1}}
  - {step: z}
  - step: y
    loop:
      source: {kind: range, stop: 3, page: 10, timeout: 3s, retry: {attempts: 2}}
      key: "{{ item }}"
      order: {after: "{{ item }}", on_cycle: drop}
      max_in_flight: 2
      on_item_error: continue
      timeout: 3s
    tool: {kind: python, code: "return 1", isolation: inline}
"""


def mutated(chance: random.Random) -> Any:
    """A good playbook in which a few values were changed, added or taken away."""
    data = read_yaml(RICH, "f").value
    data = json.loads(json.dumps(data))
    for _ in range(chance.randint(1, 2)):
        places = list(containers(data))
        place = chance.choice(places)
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys or chance.random() < 0.1:
            key: Any = chance.choice(["zzz", "ctx.q", "mode"])
            if isinstance(place, dict):
                place[key] = chance.choice(ODD)
        elif chance.random() < 0.2:
            del place[chance.choice(keys)]
        else:
            place[chance.choice(keys)] = chance.choice(ODD)
    return data


def containers(data: Any) -> Any:
    if isinstance(data, dict | list):
        yield data
        for each in data.values() if isinstance(data, dict) else data:
            yield from containers(each)


def test_no_playbook_is_accepted_by_the_reader_and_refused_by_the_schema() -> None:
    assert errors(read_yaml(RICH, "f").value) == []
    accepted = 0
    for seed in range(500):
        data = mutated(random.Random(seed))
        text = json.dumps(data)
        try:
            read(text, "f", CATALOG, sources=lambda: SOURCES)
        except InvalidPlaybook:
            continue
        accepted += 1
        assert errors(data) == [], text
    assert accepted > 20
