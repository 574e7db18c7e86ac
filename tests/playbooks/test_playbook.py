"""Playbooks that are good: every key, and the plan that it makes."""

from typing import Any

import pytest
from msgspec import structs

from refold.core.graph import analyse
from refold.core.plan import Arc, Call, Gate, Loop, Plan, Poll, Quality, Retry, Step, Wait
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook
from refold.tools.catalog import CATALOG

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: good}\n"


def playbook(text: str) -> Playbook:
    return read(text, "play.yaml", CATALOG)


def step(body: str, more: str = "") -> Step:
    """The step `a` with these keys, each on its own line."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return playbook(f"{HEAD}workload: {{n: 1, rows: [1]}}\nworkflow:\n  - step: a\n{lines}{more}").plan.steps[0]


def changed(found: Step) -> dict[str, Any]:
    """What a step says beyond its name and the bare form of its input."""
    plain = Step(name="a", input={"$let": {}, "$in": {}})
    return {
        name: getattr(found, name) for name in structs.asdict(plain) if getattr(found, name) != getattr(plain, name)
    }


def test_the_smallest_playbook_is_one_step() -> None:
    assert playbook(HEAD + "workflow:\n  - step: a\n").plan == Plan(
        name="good", language="refold", steps=(Step(name="a", input={"$let": {}, "$in": {}}),)
    )


def test_every_key_of_the_root_is_read() -> None:
    found = playbook(
        """\
        # comments are free
        apiVersion: refold/v1
        kind: Playbook
        metadata: {name: daily.report-2, description: d, version: 3, path: a/b, labels: {team: data}, tags: [x]}
        workload: {city: Oslo, days: 3, deep: {list: [1, null, 2.5, true]}}
        executor: {spec: {entry_step: b, final_step: f}}
        on_failure: cancel
        always: [z, y]
        on_fail: [x]
        timeout: 2h
        workflow: [{step: a}, {step: b, next: a}, {step: f}, {step: x}, {step: y}, {step: z}]
        """.replace("        ", "")
    )
    plan = found.plan
    assert (plan.name, plan.entry, plan.final_step, plan.on_failure) == ("daily.report-2", "b", "f", "cancel")
    assert (plan.always, plan.on_fail, plan.timeout) == (("z", "y"), ("x",), 7200.0)
    assert plan.defaults == {"city": "Oslo", "days": 3, "deep": {"list": [1, None, 2.5, True]}}
    assert found.metadata["labels"] == {"team": "data"} and found.metadata["version"] == 3
    assert found.warnings == ()


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "desc": ("desc: a sentence", {}),
    "when": ('when: "{{ n > 0 }}"', {"when": "{{ n > 0 }}"}),
    "when true": ("when: true", {"when": True}),
    "when false": ("when: false", {"when": False}),
    "input": ('input: {x: "{{ n }}", y: [1]}', {"input": {"$let": {"x": "{{ n }}", "y": [1]}, "$in": {}}}),
    "set": ('set: {ctx.x: "{{ output.data }}", ctx.Y_2: 1}', {"set": {"ctx.x": "{{ output.data }}", "ctx.Y_2": 1}}),
    "timeout": ("timeout: 1m30s", {"timeout": 90.0}),
    "timeout in seconds": ("timeout: 2.5", {"timeout": 2.5}),
    "visit limit": ("visit_limit: 7", {"visit_limit": 7}),
    "queue": ("queue: heavy", {"queue": "heavy"}),
    "priority": ("priority: -3", {"priority": -3}),
    "retry": ("retry: {attempts: 3}", {"retry": Retry(attempts=3)}),
    "retry that grows": (
        "retry: {attempts: 3, backoff: linear}",
        {"retry": Retry(attempts=3, backoff="linear", delay=1.0)},
    ),
    "retry, all of it": (
        "retry: {attempts: 5, backoff: exponential, delay: 250ms, max_delay: 1m, jitter: 1}",
        {"retry": Retry(attempts=5, backoff="exponential", delay=0.25, max_delay=60.0, jitter=1.0)},
    ),
    "a tool": (
        'tool: {kind: python, code: "return n", isolation: inline, input: {n: "{{ n }}"}}',
        {
            "work": Call(tool="python", settings={"code": "return n", "isolation": "inline"}),
            "input": {"$let": {"n": "{{ n }}"}, "$in": {}},
        },
    ),
    "a tool's input over the step's": (
        'input: {x: 1, y: 2}\ntool: {kind: noop, input: {y: 3}, result: "{{ x + y }}"}',
        {"input": {"$let": {"x": 1, "y": 3}, "$in": {"result": "{{ x + y }}"}}},
    ),
    "a tool's durations": (
        'tool: {kind: http, url: "http://x.test/{{ n }}", timeout: PT1M}',
        {
            "work": Call(tool="http"),
            "input": {"$let": {}, "$in": {"url": "http://x.test/{{ n }}", "timeout": 60.0}},
        },
    ),
    "a computed duration": (
        'tool: {kind: http, url: "http://x.test", timeout: "{{ n }}"}',
        {"work": Call(tool="http"), "input": {"$let": {}, "$in": {"url": "http://x.test", "timeout": "{{ n }}"}}},
    ),
    "wait": ("tool: {kind: wait, seconds: 1m}", {"work": Wait(seconds=60.0), "input": None}),
    "wait, computed": (
        'tool: {kind: wait, seconds: "{{ n }}", signal: "go-{{ n }}"}',
        {"work": Wait(seconds="{{ n }}", signal="go-{{ n }}"), "input": None},
    ),
    "wait until": (
        "tool: {kind: wait, until: 2027-01-31T12:00:00.5+01:00}",
        {"work": Wait(until=1801393200_500000), "input": None},
    ),
    "wait until seconds": ("tool: {kind: wait, until: 1801393200}", {"work": Wait(until=1801393200), "input": None}),
    "wait for several signals": (
        "tool: {kind: wait, signal: [a, b]}\ntimeout: 5m",
        {"work": Wait(signal=["a", "b"]), "timeout": 300.0, "input": None},
    ),
    "gate": ("tool: {kind: gate}", {"work": Gate(), "input": None}),
    "gate, all of it": (
        'tool: {kind: gate, prompt: "{{ n }}?", options: {ok: Fine, no: "no"}, refuse: ["no"], form: {type: object},'
        ' assignee: "{{ n }}", min_approvals: 2, timeout: 1h, on_timeout: continue}',
        {
            "work": Gate(
                prompt="{{ n }}?",
                options=("ok", "no"),
                refuse=("no",),
                labels={"ok": "Fine"},
                form={"type": "object"},
                assignee="{{ n }}",
                min_approvals=2,
                timeout=3600.0,
                on_timeout="continue",
            ),
            "input": None,
        },
    ),
    "gate, a review": ("tool: {kind: gate, type: review}", {"work": Gate(refuse=()), "input": None}),
    "gate, options without reject": (
        "tool: {kind: gate, options: [a, b]}",
        {"work": Gate(options=("a", "b"), refuse=()), "input": None},
    ),
    "quality": (
        'tool: {kind: quality, source: "{{ n }}", threshold: 80, on_fail: continue}',
        {"work": Quality(source="{{ n }}", threshold=80, on_fail="continue"), "input": None},
    ),
    "poll": (
        'tool: {kind: poll, until: "{{ n > 1 }}", every: 5s, timeout: 1m}',
        {"work": Wait(), "poll": Poll(until="{{ n > 1 }}", every=5.0, timeout=60.0), "input": None},
    ),
    "poll of a tool": (
        'tool: {kind: poll, until: "{{ output.data.ok }}", check: {kind: noop, result: ["{{ m }}"]}}'
        '\ninput: {m: "{{ n }}"}\nretry: {attempts: 2}',
        {
            "input": {"$let": {"m": "{{ n }}"}, "$in": {"result": ["{{ m }}"]}},
            "poll": Poll(until="{{ output.data.ok }}"),
            "retry": Retry(attempts=2),
        },
    ),
    "wait until microseconds": ("tool: {kind: wait, until: 12}", {"work": Wait(until=12), "input": None}),
    "loop": (
        "loop: {in: [1, 2]}",
        {
            "loop": Loop(items=[1, 2], iterator="item", sequential=True),
            "input": {"$let": {"item": "{{ item }}", "loop_index": "{{ iter.index }}"}, "$in": {}},
        },
    ),
    "loop, all of it": (
        'loop: {in: "{{ rows }}", iterator: row, spec: {mode: parallel, max_in_flight: 4}}\ninput: {row: 5}',
        {
            "loop": Loop(items="{{ rows }}", iterator="row", max_in_flight=4),
            "input": {"$let": {"row": 5, "loop_index": "{{ iter.index }}"}, "$in": {}},
        },
    ),
}


@pytest.mark.parametrize(("body", "made"), BODIES.values(), ids=BODIES)
def test_a_key_of_a_step_makes_what_it_says(body: str, made: dict[str, Any]) -> None:
    assert changed(step(body)) == made


MORE = "  - step: b\n  - step: c\n"
NEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "one name": ("next: b\nset: {ctx.z: 1}", {"arcs": (Arc(to="b"),), "set": {"ctx.z": 1}}),
    "a gate that goes elsewhere": (
        "tool: {kind: gate, timeout: 1h, on_timeout: {goto: c}}\nnext: b",
        {
            "work": Gate(timeout=3600.0, on_timeout="goto"),
            "arcs": (Arc(to="b"), Arc(to="c", on="timeout")),
            "input": None,
        },
    ),
    "names": ("next: [b, c]", {"arcs": (Arc(to="b"), Arc(to="c")), "mode": "inclusive"}),
    "a list of one": ("next: [b]", {"arcs": (Arc(to="b"),), "mode": "inclusive"}),
    "arcs": (
        'next: {arcs: [{step: b, when: "{{ n }}"}, {step: c}]}',
        {"arcs": (Arc(to="b", when="{{ n }}"), Arc(to="c"))},
    ),
    "mode": (
        "next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}",
        {"arcs": (Arc(to="b"), Arc(to="c")), "mode": "inclusive"},
    ),
    "exclusive": ("next: {spec: {mode: exclusive}, arcs: [{step: b}]}", {"arcs": (Arc(to="b"),)}),
    "everything": (
        'next: {arcs: [{step: b, on: failure, set: {ctx.why: "{{ error.kind }}"}}, {step: c, on: both, when: true}]}',
        {
            "arcs": (
                Arc(to="b", on="failure", set={"ctx.why": "{{ error.kind }}"}),
                Arc(to="c", on="both", when=True),
            )
        },
    ),
}


@pytest.mark.parametrize(("body", "made"), NEXTS.values(), ids=NEXTS)
def test_every_spelling_of_what_follows_a_step_is_read(body: str, made: dict[str, Any]) -> None:
    reaches_c = "c" in [arc.to for arc in made["arcs"]]
    assert changed(step(body, MORE if reaches_c else MORE.replace("b\n", "b\n    next: c\n"))) == made


@pytest.mark.parametrize(
    ("written", "join"), [("all", "all"), ("any", "any"), ("race", "race"), ("{at_least: 2}", 2), ("{at_least: 1}", 1)]
)
def test_every_spelling_of_a_join_is_read(written: str, join: Any) -> None:
    fork = "{step: a, next: [b, c]}, {step: b, next: d}, {step: c, next: d}"
    assert playbook(f"{HEAD}workflow: [{fork}, {{step: d, join: {written}}}]\n").plan.steps[3].join == join


def test_each_pass_puts_a_step_into_the_loop() -> None:
    text = """\
workflow:
  - step: a
    next:
      spec: {mode: inclusive}
      arcs: [{step: a, when: "{{ visit < 3 }}"}, {step: log, each_pass: true}]
  - step: log
"""
    found = playbook(HEAD + text)
    assert found.plan.steps[0].arcs[1].each_pass
    assert analyse(found.plan).loop_of == (0, 0) and found.warnings == ()


def test_a_value_behind_an_alias_is_read_where_it_is_used() -> None:
    steps = "workflow:\n  - {step: a, retry: *r, next: b}\n  - {step: b, retry: *r}\n"
    found = playbook(HEAD + "workload: {a: &r {attempts: 2, delay: 1s}}\n" + steps)
    assert [each.retry for each in found.plan.steps] == [Retry(attempts=2, delay=1.0)] * 2


def test_the_file_can_be_given_as_bytes() -> None:
    text = HEAD + "workflow:\n  - step: a\n    desc: é日\n"
    assert read(text.encode(), "f", CATALOG).plan == playbook(text).plan


def test_places_are_known_by_their_paths() -> None:
    text = (
        "workflow:\n  - step: fetch\n    when: true\n    tool:\n      kind: python\n      code: |\n        return 1\n"
    )
    found = playbook(HEAD + text)
    assert found.places["steps.fetch"] == (5, 11)
    assert found.places["steps.fetch.when"] == (6, 11)
    assert found.places["steps.fetch.tool"] == (8, 7)
    assert found.places["steps.fetch.tool.kind"] == (8, 13)
    assert found.places["steps.fetch.tool.code"] == (10, 9), "a block begins with its text"
    assert "steps.nosuch" not in found.places and len(list(found.places)) == len(found.places) == 6


def test_a_playbook_knows_its_file_and_its_text() -> None:
    found = playbook(HEAD + "workflow:\n  - step: a\n")
    assert found.file == "play.yaml" and found.source.endswith("- step: a\n")


def test_a_budget_says_what_happens_when_it_is_used_up() -> None:
    def plan_with(budget: str) -> Plan:
        return playbook(f"{HEAD}budget: {budget}\nworkflow: [{{step: a}}, {{step: sum_up}}]\nalways: [sum_up]").plan

    assert (plan_with("{tokens: 1000, usd: 2.5}").budget, plan_with("{tokens: 1}").on_budget) == (
        {"tokens": 1000, "usd": 2.5},
        "pause",
    )
    assert plan_with("{tokens: 1000, on_exceeded: fail}").on_budget == "fail"
    goto = playbook(
        f"{HEAD}budget: {{tokens: 9, on_exceeded: {{goto: sum_up}}}}\nworkflow: [{{step: a}}, {{step: sum_up}}]"
    )
    assert (goto.plan.on_budget, goto.plan.budget) == ("sum_up", {"tokens": 9})


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        ("[1]", "wrong-type"),
        ("{tokens: many}", "wrong-type"),
        ("{tokens: -1}", "out-of-range"),
        ("{Tokens Used: 1}", "bad-name"),
        ("{tokens: 1, on_exceeded: stop}", "bad-choice"),
        ("{tokens: 1, on_exceeded: {go: a}}", "bad-choice"),
        ("{tokens: 1, on_exceeded: {goto: nobody}}", "unknown-step"),
        ("{tokens: 1, on_exceeded: {goto: b}}", "finalizer-arc"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(budget: str, code: str) -> None:
    with pytest.raises(InvalidPlaybook) as caught:
        playbook(f"{HEAD}budget: {budget}\nworkflow: [{{step: a, next: b}}, {{step: b}}]")
    assert code in {each.code for each in caught.value.problems}
