"""Loops of playbooks: what the plan gets of each key, and what is refused, with its place."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from refold.core.pipeline import TaskPipeline
from refold.core.plan import PATIENT, Child, Loop, Retry, Source, Step, plan_hash
from refold.errors import NotFound
from refold.playbooks.draw import draw, mermaid
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.playbooks.schema import schema
from refold.playbooks.yaml.text import read as read_yaml
from refold.sources.catalog import CATALOG as SOURCES
from refold.templates import Templates
from refold.tool_api import ToolInfo, ToolKey
from refold.tools.catalog import CATALOG

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: loops}\nworkload: {orders: [], least: 3}\n"
VALIDATOR = Draft202012Validator(schema(CATALOG, SOURCES))
OWN = ToolInfo(
    kind="own",
    about="",
    keys=(
        ToolKey(name="timeout", type="duration"),
        ToolKey(name="page", type="text"),
        ToolKey(name="file", type="text"),
    ),
)


def text(loop: str, more: str = "", head: str = HEAD) -> str:
    """A step with such a loop; the loop begins in line 7, column 11."""
    return f"{head}workflow:\n  - {{step: ship,\n    loop: {loop}{more}}}\n"


def playbook(source: str, **files: str) -> Playbook:
    """Beside it stand these files, whose names end in .yaml."""

    def load(file: str) -> bytes:
        name = file.removeprefix("/plays/").removesuffix(".yaml")
        if name not in files:
            raise NotFound(f"there is no file {file}")
        return files[name].encode()

    known = lambda: {"cities", "token"}  # noqa: E731
    return read(source, "/plays/loops.yaml", CATALOG, load, secrets=known, sources=lambda: {**SOURCES, "own": OWN})


def step(loop: str, more: str = "") -> Step:
    found = playbook(text(loop, more))
    assert found.warnings == ()
    return found.plan.steps[0]


def the_loop(loop: str, more: str = "") -> Loop:
    found = step(loop, more).loop
    assert found is not None
    return found


def source(keys: str) -> Source:
    found = the_loop(f"{{source: {{{keys}}}}}").source
    assert found is not None
    return found


def problems(loop: str, more: str = "", **files: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidPlaybook) as caught:
        playbook(text(loop, more), **files)
    return caught.value.problems


def errors(loop: str, more: str = "", **files: str) -> list[tuple[str, int, str]]:
    """Codes, columns and messages: all stand in the line of the loop."""
    found = problems(loop, more, **files)
    assert {each.place.line for each in found} == {7} and all(each.hint for each in found)
    return [(each.code, each.place.column, each.message) for each in found]


def hints(loop: str, more: str = "") -> list[str]:
    return [each.hint for each in problems(loop, more)]


def test_every_key_of_a_loop_is_in_the_plan() -> None:
    found = the_loop(
        '{in: "{{ orders }}", iterator: order, max_in_flight: 8, key: "{{ order.id }}",'
        ' order: {after: "{{ order.needs }}", on_cycle: drop}, on_item_error: skip_dependents,'
        " tolerate: 1%, min_success: 10}"
    )
    assert found == Loop(
        items="{{ orders }}",
        iterator="order",
        max_in_flight=8,
        key="{{ order.id }}",
        after="{{ order.needs }}",
        on_cycle="drop",
        tolerate="1%",
        min_success=10,
    )


def test_a_loop_that_says_nothing_more_is_what_it_always_was() -> None:
    assert the_loop("{in: [1]}") == Loop(items=[1], sequential=True)
    assert the_loop("{in: [1], spec: {mode: parallel, max_in_flight: 3}}") == Loop(items=[1], max_in_flight=3)
    assert the_loop("{in: [1], spec: {mode: parallel}}") == Loop(items=[1], max_in_flight=16)


def test_max_in_flight_at_the_loop_means_that_it_is_parallel() -> None:
    assert the_loop("{in: [1], max_in_flight: 1}") == Loop(items=[1], max_in_flight=1)
    assert the_loop("{in: [1], max_in_flight: 5, spec: {mode: parallel}}") == Loop(items=[1], max_in_flight=5)


def test_how_many_at_once_may_be_computed() -> None:
    assert the_loop('{in: [1], max_in_flight: "{{ least }}"}') == Loop(items=[1], computed_max_in_flight="{{ least }}")
    assert [each.code for each in problems('{in: [1], max_in_flight: "{{ item }}"}')] == ["unknown-name"]
    assert [each.code for each in problems('{in: [1], max_in_flight: "about {{ least }}"}')] == ["wrong-type"]


def test_what_follows_when_an_item_has_failed() -> None:
    assert the_loop("{in: [1]}").on_item_error == "all"
    assert the_loop("{in: [1], on_item_error: continue}").on_item_error == "all"
    assert the_loop("{in: [1], on_item_error: halt}").on_item_error == "halt"


def test_shares_are_numbers_or_percentages() -> None:
    for written, meant in {"0": 0, "3": 3, "1%": "1%", "0.5 %": "0.5%", "100%": "100%", "'7%'": "7%"}.items():
        found = the_loop(f"{{in: [1], tolerate: {written}, min_success: {written}}}")
        assert (found.tolerate, found.min_success) == (meant, meant)


def test_keys_may_be_put_together_and_waits_may_be_listed() -> None:
    found = the_loop('{in: [1], key: "{{ item.a }}-{{ item.b }}", order: {after: ["{{ item.up }}", root]}}')
    assert (found.key, found.after, found.on_cycle) == ("{{ item.a }}-{{ item.b }}", ["{{ item.up }}", "root"], "fail")


def test_retry_and_timeout_of_a_loop_are_those_of_its_step() -> None:
    found = step("{in: [1], retry: {attempts: 3, delay: 2s}, timeout: 1m}")
    assert (found.retry, found.timeout) == (Retry(attempts=3, delay=2.0), 60.0)
    assert found == step("{in: [1]}", ", retry: {attempts: 3, delay: 2s}, timeout: 1m")


def test_the_timeout_of_a_loop_over_several_tools_is_that_of_the_pipeline() -> None:
    found = step("{in: [1], timeout: 1m}", ", tool: [{kind: noop}, {kind: noop}]")
    assert isinstance(found.work, TaskPipeline) and found.work.timeout == 60.0


def test_a_source_has_the_keys_of_its_kind_and_stands_beside_the_playbook() -> None:
    found = source('kind: csv, path: "{{ workload.least }}.csv", types: {amount: number}')
    assert found == Source(
        kind="csv", settings={"path": "{{ workload.least }}.csv", "types": {"amount": "number"}, "folder": "/plays"}
    )
    assert (found.page, found.retry, found.timeout) == (500, PATIENT, None)


def test_the_folder_is_told_to_those_that_read_files_only() -> None:
    assert source("kind: range, stop: 3").settings == {"stop": 3}
    assert source("kind: glob, pattern: '*.csv'").settings["folder"] == "/plays"
    assert source("kind: sql, driver: sqlite, database: a.db, query: select 1").settings["folder"] == "/plays"


def test_what_is_said_of_pages_is_for_the_engine() -> None:
    found = source("kind: range, stop: 3, page: 20, retry: {attempts: 2}, timeout: 30s")
    assert found == Source(kind="range", settings={"stop": 3}, page=20, retry=Retry(attempts=2), timeout=30.0)


def test_a_kind_may_have_its_own_key_of_such_a_name() -> None:
    found = source("kind: own, page: front, timeout: 2s, retry: {attempts: 2}")
    assert found == Source(kind="own", settings={"page": "front", "timeout": 2.0}, retry=Retry(attempts=2))


def test_what_is_taken_as_it_is_written_is_so_after_rendering() -> None:
    code = 'x = {1: {2: 3}}\nreturn [f"{{{x}}}", "{{ orders }}", "{% raw %}", "é\\t\\\\"]\n'
    lines = "".join(f"            {line}\n" for line in code.splitlines())
    body = f"    loop:\n      source:\n          kind: python\n          code: |\n{lines}"
    found = playbook(f"{HEAD}workflow:\n  - step: a\n{body}").plan.steps[0].loop
    assert found is not None and found.source is not None
    assert Templates().value(found.source.settings, {}) == {"code": code}


def test_secrets_are_named_in_keys_that_may_be_secret() -> None:
    found = source("kind: http, url: 'https://x.test', auth: {bearer: {secret: token}}")
    assert found.settings["auth"] == {"bearer": {"secret": "token"}}


def test_the_body_of_a_loop_may_be_a_playbook() -> None:
    one = f"{HEAD}workflow: [{{step: a}}]\n".replace("loops", "one")
    found = playbook(text("{in: [1], workflow: one.yaml}", ', input: {least: "{{ item }}"}'), one=one)
    [child] = found.children
    made = found.plan.steps[0]
    assert (made.work, made.input) == (Child(plan=plan_hash(child.plan)), {"least": "{{ item }}"})


def test_without_input_the_body_is_given_the_item() -> None:
    one = HEAD.replace("orders: []", "order: 1") + "workflow: [{step: a}]\n"
    found = playbook(text("{in: [1], iterator: order, workflow: one.yaml}"), one=one)
    assert found.plan.steps[0].input == {"order": "{{ order }}"}


def test_the_body_may_be_the_playbook_itself() -> None:
    found = playbook(text("{in: [], workflow: ./loops.yaml}", ", input: {least: 1}"))
    assert found.plan.steps[0].work == Child()


ONE = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: one}\ninputs: {id: {type: integer, required: true}}\n"
ONE += "workload: {note: ''}\nworkflow: [{step: a}]\n"


def test_what_the_body_needs_and_does_not_get_is_told_where_it_is_named() -> None:
    assert errors("{in: [1], workflow: one.yaml}", ", input: {note: x}", one=ONE) == [
        ("missing-input", 31, "`/plays/one.yaml` needs the input `id`")
    ]
    assert errors("{in: [1], workflow: one.yaml}", ", input: {id: x}", one=ONE) == [
        ("wrong-input", 54, "`/plays/one.yaml` does not take this as `id`: id: 'x' is not of type 'integer'")
    ]
    assert [code for code, _, _ in errors("{in: [1], iterator: di, workflow: one.yaml}", one=ONE)] == [
        "unknown-input",
        "missing-input",
    ]


def test_a_body_that_is_not_there_or_not_good_is_told_where_it_is_named() -> None:
    assert errors("{in: [1], workflow: gone.yaml}") == [("unreadable-child", 31, "there is no file /plays/gone.yaml")]
    [(code, column, message)] = errors("{in: [1], workflow: one.yaml}", one=ONE.replace("step: a", "stp: a"))
    assert (code, column) == ("invalid-child", 31) and message.startswith("/plays/one.yaml:6:")


def test_a_step_has_either_a_tool_or_a_playbook_for_its_items() -> None:
    assert errors("{in: [1], workflow: one.yaml}", ", input: {id: 1}, tool: {kind: noop}", one=ONE) == [
        ("given-twice", 21, "each item runs `workflow`, but the step has a `tool` too")
    ]
    assert [code for code, _, _ in errors("{in: [1], workflow: one.yaml}", ", tool: [{kind: noop}]", one=ONE)] == [
        "given-twice"
    ]


@pytest.mark.parametrize("more", ["limit: x", "output: {schema: {type: object}}"])
def test_what_has_no_effect_on_items_that_are_runs_is_refused(more: str) -> None:
    assert [code for code, _, _ in errors("{in: [1], workflow: one.yaml}", f", input: {{id: 1}}, {more}", one=ONE)] == [
        "no-effect"
    ]


def test_a_run_gets_no_secrets_and_keeps_none() -> None:
    one = ONE.replace("type: integer, ", "")
    assert errors("{in: [1], workflow: one.yaml}", ", input: {id: {secret: token}}", one=one) == [
        ("bad-secret", 42, "a secret cannot be passed to a run: the input of a run is stored unencrypted")
    ]
    assert errors("{in: [1], workflow: one.yaml}", ", input: {id: 1}, output: {secret: true}", one=one) == [
        ("no-effect", 58, "the result of a run is not stored encrypted")
    ]


REFUSED = {
    "neither in nor source": ("{iterator: x}", "missing-key", 11, "a loop needs `in` or `source`"),
    "both": (
        "{in: [1], source: {kind: range, stop: 1}}",
        "given-twice",
        21,
        "a loop has either `in` or `source`, not both",
    ),
    "max_in_flight twice": (
        "{in: [1], max_in_flight: 2, spec: {mode: parallel, max_in_flight: 3}}",
        "given-twice",
        62,
        "`max_in_flight` is on the loop and in its `spec`",
    ),
    "one at once, and several": (
        "{in: [1], max_in_flight: 2, spec: {mode: sequential}}",
        "contradiction",
        21,
        "a sequential loop runs one item at a time, whatever `max_in_flight` is",
    ),
    "none at once": (
        "{in: [1], max_in_flight: 0}",
        "out-of-range",
        36,
        "`max_in_flight` must be at least 1, not 0",
    ),
    "a key without an expression": (
        "{in: [1], key: id}",
        "not-a-template",
        26,
        "`key` would be the same for each item: it has no expression",
    ),
    "a key that is not a text": (
        "{in: [1], key: 3}",
        "wrong-type",
        26,
        "`key` must be text with an {{ expression }} in it, not a number",
    ),
    "an order without keys": (
        '{in: [1], order: {after: "{{ item.up }}"}}',
        "missing-key",
        21,
        "`order` needs `key`: items wait for others by their keys",
    ),
    "an order without after": (
        '{in: [1], key: "{{ item }}", order: {on_cycle: drop}}',
        "missing-key",
        47,
        "an order needs the key `after`",
    ),
    "a circle that goes on": (
        '{in: [1], key: "{{ item }}", order: {after: "{{ item }}", on_cycle: warn}}',
        "bad-choice",
        79,
        "`on_cycle` must be `fail` or `drop`, not `warn`",
    ),
    "none depends on another": (
        "{in: [1], on_item_error: skip_dependents}",
        "no-effect",
        36,
        "no item of this loop depends on another, so there are none to skip",
    ),
    "an unknown policy": (
        "{in: [1], on_item_error: stop}",
        "bad-choice",
        36,
        "`on_item_error` must be `continue`, `skip_dependents` or `halt`, not `stop`",
    ),
    "halts, and tolerates": (
        "{in: [1], on_item_error: halt, tolerate: 3}",
        "no-effect",
        42,
        "`tolerate` has no effect where the first failure halts the loop",
    ),
    "halts, and wants some": (
        "{in: [1], on_item_error: halt, min_success: 3}",
        "no-effect",
        42,
        "`min_success` has no effect where the first failure halts the loop",
    ),
    "more than all": (
        "{in: [1], tolerate: 101%}",
        "out-of-range",
        31,
        "`tolerate` must lie between 0% and 100%, not at 101%",
    ),
    "less than none": ("{in: [1], tolerate: -1}", "out-of-range", 31, "`tolerate` must be at least 0, not -1"),
    "less than none of a hundred": (
        "{in: [1], min_success: -1%}",
        "wrong-type",
        34,
        "`min_success` must be a whole number or a percentage such as 1%, not text",
    ),
    "a half": (
        "{in: [1], min_success: 0.5}",
        "wrong-type",
        34,
        "`min_success` must be a whole number or a percentage such as 1%, not 0.5",
    ),
    "yes": (
        "{in: [1], tolerate: true}",
        "wrong-type",
        31,
        "`tolerate` must be a whole number or a percentage such as 1%, not true or false",
    ),
    "a source of an unknown kind": (
        "{source: {kind: cvs, path: a.csv}}",
        "unknown-source",
        27,
        "there is no source `cvs`",
    ),
    "a source without a kind": ("{source: {path: a.csv}}", "missing-key", 20, "a source needs the key `kind`"),
    "a source that is a text": ("{source: a.csv}", "wrong-type", 20, "a source must be a map, not text"),
    "an unknown key of a kind": (
        "{source: {kind: csv, path: a.csv, delimeter: ;}}",
        "unknown-key",
        45,
        "the source `csv` has no key `delimeter`",
    ),
    "a missing key of a kind": ("{source: {kind: csv}}", "missing-key", 20, "the source `csv` needs the key `path`"),
    "a mistyped key of a kind": (
        "{source: {kind: range, stop: three}}",
        "wrong-type",
        40,
        "`stop` must be a whole number, not text",
    ),
    "what the kind itself finds": (
        "{source: {kind: range, stop: 3, step: 0}}",
        "bad-source",
        43,
        "`step` must not be 0",
    ),
    "an empty page": (
        "{source: {kind: range, stop: 3, page: 0}}",
        "out-of-range",
        49,
        "`page` must be at least 1, not 0",
    ),
    "a retry of pages that is none": (
        "{source: {kind: range, stop: 3, retry: {attempts: 0}}}",
        "out-of-range",
        61,
        "`attempts` must be at least 1, not 0",
    ),
    "the item, before there is one": (
        '{iterator: row, source: {kind: range, stop: "{{ row }}"}}',
        "unknown-name",
        59,
        "`row` is not defined here",
    ),
    "its number, before there is one": (
        '{source: {kind: range, stop: "{{ iter.index }}"}}',
        "unknown-name",
        44,
        "`iter` is not defined here",
    ),
    "a secret in a template of a source": (
        "{source: {kind: http, url: 'https://x.test', headers: {a: \"{{ secrets.token }}\"}}}",
        "unknown-name",
        73,
        "`secrets` is not defined here",
    ),
    "a secret where none may be": (
        "{source: {kind: csv, path: {secret: token}}}",
        "bad-secret",
        38,
        "`path` is rendered when the loop is entered, and cannot hold a secret",
    ),
    "a secret inside of what must be none": (
        "{source: {kind: python, function: 'a:b', args: {x: [{secret: token}]}}}",
        "bad-secret",
        58,
        "`args` is rendered when the loop is entered, and cannot hold a secret",
    ),
    "a secret that nobody has": (
        "{source: {kind: http, url: 'https://x.test', auth: {bearer: {secret: tokne}}}}",
        "unknown-secret",
        80,
        "no provider has a secret `tokne`",
    ),
    "how many, in a key": (
        '{in: [1], key: "{{ iter.count }}"}',
        "unknown-name",
        35,
        "there is no `iter.count`",
    ),
    "what came of it, in a key": (
        '{in: [1], key: "{{ output.data }}"}',
        "unknown-name",
        30,
        "`output` is not defined here",
    ),
    "an unknown name in after": (
        '{in: [1], key: "{{ item }}", order: {after: ["{{ itme.up }}"]}}',
        "unknown-name",
        60,
        "`itme` is not defined here",
    ),
    "an order beside order": (
        '{in: [1], after: "{{ item }}"}',
        "unknown-key",
        21,
        "a loop has no key `after` in refold/v1",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused(case: tuple[str, str, int, str]) -> None:
    loop, code, column, message = case
    assert errors(loop) == [(code, column, message)]


def test_what_stands_at_the_loop_and_at_its_step_is_refused() -> None:
    loop, more = "{in: [1], retry: {attempts: 2}, timeout: 3s}", ", retry: {attempts: 2}, timeout: 3s"
    assert errors(loop, more) == [
        ("given-twice", 21, "`retry` is on the loop and on its step, and means the same"),
        ("given-twice", 43, "`timeout` is on the loop and on its step, and means the same"),
    ]


def test_hints_say_what_was_meant() -> None:
    assert hints("{source: {kind: cvs, path: a.csv}}") == ["did you mean `csv`?"]
    assert hints("{source: {kind: csv, path: a.csv, delimeter: ;}}") == ["did you mean `delimiter`?"]
    assert hints("{source: {kind: csv, path: a.csv, pages: 3}}") == ["did you mean `page`?"]
    assert hints('{source: {kind: range, stop: "{{ item }}"}}') == ["a source is asked before there is an item"]
    assert hints('{source: {kind: range, stop: "{{ secrets.token }}"}}') == [
        "write `{secret: name}` as the value of a key that may be secret"
    ]
    assert hints('{iterator: order, in: [1], order: {after: "{{ order.up }}"}}') == ['add `key: "{{ order.id }}"`']
    assert hints("{in: [1], ordered: true}") == ["write `order: {after: …}`"]
    assert hints("{in: [1], max_in_flght: 2}") == ["did you mean `max_in_flight`?"]


def test_the_result_of_a_secret_step_is_not_for_a_source() -> None:
    first = "  - {step: login, tool: {kind: noop}, output: {secret: true}, next: ship}\n  - {step: ship,\n"
    body = text('{source: {kind: csv, path: "{{ login.file }}"}}').replace("  - {step: ship,\n", first)
    with pytest.raises(InvalidPlaybook) as caught:
        playbook(body)
    assert [each.code for each in caught.value.problems] == ["sealed-result"]


def test_a_playbook_with_a_broken_source_is_told_of_nothing_else() -> None:
    more = ', input: {id: "{{ order.id }}"}'
    assert [code for code, _, _ in errors('{source: {kind: cvs}, iterator: order, key: "{{ order.id }}"}', more)] == [
        "unknown-source"
    ]


def test_which_items_failed_can_be_read_and_what_is_none_of_it_not() -> None:
    then = "  - {step: tell, tool: {kind: noop, result: "
    body = f'{text("{in: [1]}", ", next: tell")}{then}["{{{{ ship.failed }}}}", "{{{{ ship.stats.skipped }}}}"]}}}}\n'
    assert playbook(body).warnings == ()
    with pytest.raises(InvalidPlaybook, match=r"`ship` has no `fails`"):
        playbook(body.replace("ship.failed", "ship.fails"))


def test_a_drawing_tells_of_sources_and_order() -> None:
    def drawn(loop: str) -> str:
        return draw(playbook(text(loop)).plan).split("⟳ ")[1].strip()

    after = 'key: "{{ item.id }}", order: {after: "{{ item.up }}"}'
    assert drawn("{source: {kind: csv, path: a.csv}}") == "each item of csv a.csv, one by one"
    assert drawn(f"{{in: [1, 2], {after}}}") == "each item of 2 items, one by one, after item.up"
    assert drawn("{source: {kind: list, items: [1]}, max_in_flight: 3}") == "each item of list 1 items, 3 at once"
    assert drawn('{in: "{{ orders }}", max_in_flight: "{{ least }}"}') == "each item of orders, least at once"
    assert drawn("{source: {kind: own}, iterator: row}") == "each row of own, one by one"
    chart = mermaid(playbook(text("{source: {kind: csv, path: a.csv}}")).plan)
    assert '[["ship<br>noop<br>each item of csv a.csv, one by one"]]' in chart


EXAMPLES = [each for info in SOURCES.values() for each in info.example.split("---\n")]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_sources_on_their_page_are_good_ones(example: str) -> None:
    lines = "".join(f"        {line}\n" for line in example.splitlines())
    head = HEAD.partition("workload")[0]
    source = f"{head}workflow:\n  - step: a\n    loop:\n      source:\n{lines}"
    assert read(source, "f", CATALOG, sources=lambda: SOURCES).warnings == ()
    assert list(VALIDATOR.iter_errors(read_yaml(source, "f").value)) == []


GOOD = [
    '{in: "{{ orders }}", iterator: order, max_in_flight: 8, key: "{{ order.id }}", tolerate: 1%, min_success: 10}',
    '{in: [1], key: "{{ item.a }}", order: {after: ["{{ item.up }}"], on_cycle: drop}, on_item_error: halt}',
    "{source: {kind: csv, path: a.csv, page: 20, retry: {attempts: 2}, timeout: 30s}, tolerate: 0.5 %}",
    "{source: {kind: range, stop: '{{ least }}'}, workflow: a.yaml, max_in_flight: '{{ least }}'}",
    "{source: {kind: http, url: 'https://x.test', auth: {secret: token}, timeout: 3s}}",
    "{source: {kind: sql, driver: postgres, url: {secret: token}, query: select 1}}",
]
UNFIT = (
    "neither in nor",
    "both",
    "a key without",
    "a key that",
    "an order without after",
    "a circle that",
    "more than all",
    "less than none",
    "a half",
    "yes",
    "a source",
    "an unknown",
    "a missing",
    "a mistyped",
    "an empty page",
    "a retry of",
    "none at once",
)


def flaws(loop: str) -> list[Any]:
    return list(VALIDATOR.iter_errors(read_yaml(text(loop), "f").value))


@pytest.mark.parametrize("loop", GOOD)
def test_what_the_reader_accepts_the_schema_accepts(loop: str) -> None:
    assert flaws(loop) == []


@pytest.mark.parametrize("name", [name for name in REFUSED if name.startswith(UNFIT) and "in after" not in name])
def test_what_is_shaped_otherwise_the_schema_refuses(name: str) -> None:
    assert flaws(REFUSED[name][0]) != []
