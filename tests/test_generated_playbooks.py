"""Playbooks made from a seed, in both languages: each one that is valid ends, and as the referee says."""

import asyncio
import json
from typing import Any

import pytest

from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine
from tests.programs import random_program
from tests.referee import Workflow, run

SEEDS = 150
BROKEN = "1 // 0"
LIMIT = 40  # visits of a step


def plain(workflow: Workflow, keys: tuple[str, ...]) -> Workflow:
    """The same program without what takes time: no durations, no further tries, and a failure is a failure."""
    steps = {}
    for name, step in workflow["steps"].items():
        kept = {key: step[key] for key in ("guard", "mode", *keys) if key in step}
        kept["arcs"] = [{key: arc[key] for key in ("to", "on", "when") if key in arc} for arc in step.get("arcs", ())]
        if "loop" in step:
            kept["loop"] = {"items": ["ok" if item in (0, "ok") else "fail" for item in step["loop"]["items"]]}
        elif "outcome" in step:
            kept["outcome"] = ["ok" if each in (0, "ok") else "fail" for each in step["outcome"]]
        steps[name] = kept
    return {"entry": workflow["entry"], "steps": steps}


def is_timed(workflow: Workflow) -> bool:
    """Whether it matters who comes first."""
    return any(step.get("join", "all") != "all" for step in workflow["steps"].values())


def chosen(values: list[Any], words: dict[Any, str]) -> str:
    """An expression for the value of this visit; the last one repeats."""
    *most, last = (words[value] for value in values)
    found = last
    for visit, word in reversed(list(enumerate(most, 1))):
        found = f"({word} if visit == {visit} else {found})"
    return found


def condition(values: list[Any]) -> str:
    return chosen(values, {True: "true", False: "false", "error": f"({BROKEN} > 0)"})


def result(name: str, step: dict[str, Any], item: str) -> str:
    if "loop" in step:
        return f"{{{{ {BROKEN} if {item} == 'fail' else 1 }}}}"
    return f"{{{{ {chosen(step.get('outcome', ['ok']), {'ok': repr(name), 'fail': BROKEN})} }}}}"


def refold(workflow: Workflow) -> dict[str, Any]:
    return {
        "apiVersion": "refold/v1",
        "kind": "Playbook",
        "metadata": {"name": "generated"},
        "executor": {"spec": {"entry_step": f"s_{workflow['entry']}"}},
        "workflow": [_refold_step(name, step) for name, step in workflow["steps"].items()],
    }


def _refold_step(name: str, step: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"step": f"s_{name}", "tool": {"kind": "noop", "result": result(name, step, "item")}}
    if "guard" in step:
        told["when"] = f"{{{{ {condition(step['guard'])} }}}}"
    if "loop" in step:
        told["loop"] = {"in": step["loop"]["items"]}
    told |= {"visit_limit": LIMIT} | {key: step[key] for key in ("join", "visit_limit") if key in step}
    arcs = [_refold_arc(arc) for arc in step["arcs"]] if step.get("arcs") else []
    return told | ({"next": {"spec": {"mode": step.get("mode", "exclusive")}, "arcs": arcs}} if arcs else {})


def _refold_arc(arc: dict[str, Any]) -> dict[str, Any]:
    when = {"when": f"{{{{ {condition(arc['when'])} }}}}"} if "when" in arc else {}
    return {"step": f"s_{arc['to']}", **{key: arc[key] for key in ("on", "each_pass") if key in arc}, **when}


def noetl(workflow: Workflow) -> dict[str, Any]:
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "generated"},
        "executor": {"spec": {"entry_step": f"s_{workflow['entry']}"}},
        "workflow": [_noetl_step(name, step) for name, step in workflow["steps"].items()],
    }


def _noetl_step(name: str, step: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"step": f"s_{name}", "tool": {"kind": "noop", "result": result(name, step, "each")}}
    if "guard" in step:
        rules = [{"when": f"{{{{ {condition(step['guard'])} }}}}", "then": {"allow": True}}]
        told["spec"] = {"policy": {"admit": {"rules": [*rules, {"else": {"then": {"allow": False}}}]}}}
    if "loop" in step:
        told["loop"] = {"in": step["loop"]["items"], "iterator": "each", "spec": {"mode": "parallel"}}
    arcs = [_noetl_arc(arc) for arc in step.get("arcs", ())]
    return told | {"next": {"spec": {"mode": step.get("mode", "exclusive")}, "arcs": arcs}}


def _noetl_arc(arc: dict[str, Any]) -> dict[str, Any]:
    """An arc that reads how the step has ended can handle a failure."""
    events = {"success": "", "failure": "event.name == 'call.error'", "both": "event.name != ''"}
    said = [events[arc.get("on", "success")], f"({condition(arc['when'])})" if "when" in arc else ""]
    words = " and ".join(each for each in said if each)
    return {"step": f"s_{arc['to']}", **({"when": f"{{{{ {words} }}}}"} if words else {})}


def is_endless(workflow: Workflow) -> bool:
    """Whether it would go on until the limit of visits; that a NoETL playbook cannot lower."""
    steps = {name: {"visit_limit": LIMIT, **step} for name, step in workflow["steps"].items()}
    error = run({**workflow, "steps": steps})["error"]
    return error is not None and error["why"] == "visit limit"


async def played(playbooks: list[dict[str, Any]]) -> list[Any]:
    """Each is read as text, and run by an engine to its end."""
    found = []
    async with open_engine() as engine:
        for playbook in playbooks:
            plan = read(json.dumps(playbook), "play.yaml", CATALOG).plan
            handle = (await engine.start(plan)).id
            async with asyncio.timeout(60):
                await engine.wait(handle)
            found.append(await engine.show(handle))
    return found


def told(shown: Any) -> dict[str, Any]:
    return {"status": shown.status, "visits": {name: step["visits"] for name, step in shown.steps.items()}}


def expected(workflow: Workflow) -> dict[str, Any]:
    steps = {name: {"visit_limit": LIMIT, **step} for name, step in workflow["steps"].items()}
    found = run({**workflow, "steps": steps})
    return {"status": found["status"], "visits": {f"s_{name}": visits for name, visits in found["visits"].items()}}


def is_valid(playbook: dict[str, Any]) -> bool:
    try:
        read(json.dumps(playbook), "play.yaml", CATALOG)
    except InvalidPlaybook:
        return False
    return True


def compare(playbooks: list[dict[str, Any]], workflows: list[Workflow]) -> int:
    """How many were held against the referee; of a failed run, what others had begun by then is chance."""
    shown = asyncio.run(played(playbooks))
    compared = 0
    for one, workflow in zip(shown, workflows, strict=True):
        assert one.status in ("completed", "failed")
        if is_timed(workflow):
            continue
        compared += 1
        wanted, found = expected(workflow), told(one)
        assert found["status"] == wanted["status"], workflow
        if wanted["status"] == "completed":
            assert found["visits"] == wanted["visits"], workflow
    return compared


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_every_valid_playbook_ends_and_as_the_referee_says(first: int) -> None:
    workflows = [plain(random_program(seed), ("join", "visit_limit")[seed % 2 :]) for seed in range(first, first + 50)]
    pairs = [(refold(workflow), workflow) for workflow in workflows]
    valid = [pair for pair in pairs if is_valid(pair[0])]
    assert len(valid) > 20
    assert compare([playbook for playbook, _ in valid], [workflow for _, workflow in valid]) > 12


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_every_noetl_playbook_ends_and_as_the_referee_says(first: int) -> None:
    workflows = [plain(random_program(seed), ()) for seed in range(first, first + 50)]
    workflows = [workflow for workflow in workflows if not is_endless(workflow)]
    assert compare([noetl(workflow) for workflow in workflows], workflows) > 30
