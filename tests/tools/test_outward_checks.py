"""What is seen before a run to be wrong with the tools that reach beyond it."""

from typing import Any

import pytest

from tests.tools.test_catalog import problems

URL = "http://x.test/mcp"


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("artifact", {"ref": "{{ ctx.ref }}"}),
        ("artifact", {}),
        ("artifact", {"action": "put", "uri": "a.json", "data": None}),
        ("artifact", {"action": "list"}),
        ("emit", {"event": "order.paid", "data": 5}),
        ("emit", {"event": "{{ ctx.name }} x"}),
        ("emit", {"message": "two words"}),
        ("container", {"image": "busybox", "resources": {"cpus": 1, "memory": "1g"}}),
        ("container", {"image": "busybox", "resources": "{{ ctx.resources }}"}),
        ("mcp", {"endpoint": URL, "tool": "x", "auth": {"bearer": "t"}}),
        ("mcp", {"command": ["x"], "method": "tools/list", "env": {"A": 1}}),
        ("llm", {"base_url": URL, "model": "m", "prompt": "x", "system": "y"}),
        ("llm", {"base_url": URL, "model": "m", "messages": []}),
    ],
)
def test_what_is_right_has_no_problem(kind: str, keys: dict[str, Any]) -> None:
    assert problems(kind, keys) == []


@pytest.mark.parametrize(
    ("kind", "keys", "key", "message"),
    [
        ("artifact", {"action": "put", "data": 5}, "", "`put` needs `uri`"),
        ("artifact", {"action": "put", "uri": "a"}, "", "`put` needs `data`"),
        ("artifact", {"ref": "a", "uri": "b"}, "uri", "`uri` and `ref` exclude each other"),
        ("emit", {}, "", "exactly one of `event` and `message` is needed"),
        ("emit", {"event": "a", "message": "b"}, "", "exactly one of `event` and `message` is needed"),
        ("emit", {"event": "two words"}, "event", "the name of an event has no spaces"),
        ("container", {"image": "x", "resources": {"gpus": 1}}, "resources", "`resources` has no 'gpus'"),
        ("mcp", {"tool": "x"}, "", "exactly one of `endpoint` and `command` is needed"),
        ("mcp", {"endpoint": URL}, "", "`tools/call` needs `tool`"),
        ("mcp", {"endpoint": URL, "tool": "x", "env": {}}, "env", "`env` belongs to `command`"),
        ("mcp", {"command": ["x"], "tool": "x", "headers": {}}, "headers", "`headers` belongs to `endpoint`"),
        ("llm", {"prompt": "x", "messages": []}, "", "exactly one of `messages` and `prompt` is needed"),
        ("llm", {"messages": [], "system": "x"}, "system", "`system` belongs to `prompt`"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(kind: str, keys: dict[str, Any], key: str, message: str) -> None:
    (problem,) = problems(kind, keys)
    assert (problem.key, problem.message) == (key, message)
    assert problem.hint
