"""What the tool `agent` is for its authors: its keys, its result, an example, and its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem

TRIES = 3
MOST_TRIES = 20


def check_agent(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    found = []
    if (keys.get("agent") is None) == (keys.get("by") is None):
        hint = "name an agent of the bindings, as in `agent: reviewer`, or write the tool that answers under `by`"
        found.append(ToolProblem("", "exactly one of `agent` and `by` is needed", hint))
    agent = keys.get("agent")
    if isinstance(agent, str) and "{{" in agent:
        hint = "write the name; `if` or `when` choose between steps"
        found.append(ToolProblem("agent", "the name of an agent cannot be computed", hint))
    if keys.get("reads") == "text" and keys.get("schema") is not None:
        found.append(ToolProblem("reads", "a reply that is text has no schema", "leave `reads` out"))
    tries = keys.get("tries")
    if isinstance(tries, int) and not 1 <= tries <= MOST_TRIES:
        found.append(ToolProblem("tries", f"`tries` is between 1 and {MOST_TRIES}", f"for example `tries: {TRIES}`"))
    return found


AGENT = ToolInfo(
    kind="agent",
    about="Hands a prompt to an agent and checks the reply. Which tool answers for an agent is in a file of"
    " [bindings](bindings.md), so that one playbook runs with any of them. A reply that does not fit the schema is"
    " sent back with the error, at most `tries` times; then the step fails with kind `schema`. What the bound tool"
    " uses up is counted in the run's usage.",
    keys=(
        ToolKey(name="agent", type="text", about="the name of the agent, which the bindings have"),
        ToolKey(
            name="by",
            type="tool",
            static=True,
            about="in place of `agent`: the tool that answers. Its keys are rendered each time it is asked, and read"
            " the names that bound tools read, such as `prompt`",
        ),
        ToolKey(name="prompt", type="text", required=True, about="what to do, or the question"),
        ToolKey(
            name="schema",
            type="map",
            about="a JSON Schema of the reply, which is then JSON. The prompt says so, and shows the schema",
        ),
        ToolKey(
            name="reads",
            type="text",
            static=True,
            choices=("text", "json"),
            about="how the reply is read: as text, or as the last JSON value in it (`json` if there is a schema)",
        ),
        ToolKey(
            name="tries",
            type="integer",
            static=True,
            about=f"how often the agent is asked in one try of the step, until its reply fits ({TRIES})",
        ),
        ToolKey(name="model", type="text", about="the model that is wanted; a bound tool reads it as `model`"),
        ToolKey(name="inputs", type="map", about="further values; a bound tool reads them as `inputs.name` ({})"),
        ToolKey(name="role", type="text", about="for bound tools that distinguish roles (`reviewer`)"),
        ToolKey(name="can_commit", type="bool", about="whether the agent may change things (false)"),
        ToolKey(name="identity", type="text", about="for bound tools that act under a name"),
        ToolKey(name="plugin_dirs", type="list", about="folders of plugins for the bound tool ([])"),
        ToolKey(name="max_turns", type="integer", about="how many turns the bound tool may take"),
        ToolKey(name="dry_run", type="bool", about="whether the agent is to change nothing (false)"),
    ),
    result="`{text, output, tries}`: `output` is the JSON value, or the text; `tries` how often the agent was asked",
    result_keys=("text", "output", "tries"),
    check=check_agent,
    example="""\
tool:
  kind: agent
  agent: reviewer
  prompt: "Review this change: {{ ctx.diff }}"
  schema:
    type: object
    properties: {verdict: {enum: [pass, fail]}, notes: {type: string}}
    required: [verdict]
---
tool:
  kind: agent
  by: {kind: shell, command: [claude, -p], stdin: "{{ prompt }}"}
  prompt: Name one risk of this plan.
""",
)
