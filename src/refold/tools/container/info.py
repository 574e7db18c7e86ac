"""What the tool `container` is for its authors: its keys, its result, an example, and its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem
from refold.tools.key_checks import programs_in


def check_container(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    resources = keys.get("resources")
    known = ("cpus", "memory")
    return [
        ToolProblem("resources", f"`resources` has no {name!r}", "it has `cpus` and `memory`")
        for name in (resources if isinstance(resources, Mapping) else ())
        if name not in known
    ]


CONTAINER = ToolInfo(
    kind="container",
    about="Runs a container with the program `docker`, and removes it afterwards. Its name comes from the idempotency"
    " key, so that a repetition ends what an earlier try left behind. When time is up, it is killed by its name."
    " The environment has REFOLD_RUN, REFOLD_STEP, REFOLD_ATTEMPT and REFOLD_IDEMPOTENCY_KEY. An exit code that is not"
    " among `ok_codes` is a failure of kind `exit`, one of docker itself of kind `container`, or `connection` if it"
    " cannot be reached.",
    keys=(
        ToolKey(name="image", type="text", required=True, about="such as `python:3.12-slim`"),
        ToolKey(name="command", type="list", about="the program in place of the image's own entry point"),
        ToolKey(name="args", type="list", about="its arguments; each value is one argument, whatever is in it"),
        ToolKey(
            name="env",
            type="any",
            about="variables, as a map or as a list of `{name, value}`; they reach the container alone and not docker"
            " itself, nor are their values seen among its arguments, so this is the place for secrets",
        ),
        ToolKey(name="volumes", type="list", about="such as `/data/in:/in:ro`, or `{source, target, read_only}`"),
        ToolKey(name="resources", type="map", about="`{cpus, memory}`, such as `{cpus: 1.5, memory: 512m}`"),
        ToolKey(name="network", type="text", about="the network it is in; `none` for none"),
        ToolKey(name="user", type="text", about="who runs it, such as `1000:1000`"),
        ToolKey(name="cwd", type="text", about="the folder it runs in"),
        ToolKey(name="stdin", type="any", about="what it reads: text as it is, other values as JSON"),
        ToolKey(
            name="pull",
            type="text",
            choices=("missing", "always", "never"),
            about="when the image is fetched (`missing`)",
        ),
        ToolKey(name="ok_codes", type="list", about="exit codes that are no failure ([0])"),
        ToolKey(name="timeout", type="duration", about="for all of it. Without it, only the step's own"),
    ),
    result="`{exit_code, stdout, stderr, truncated, name, image}`: the first MiB of each stream, and how many bytes"
    " were left out",
    result_keys=("exit_code", "stdout", "stderr", "truncated", "name", "image"),
    check=check_container,
    check_programs=programs_in("command", "args"),
    example="""\
tool:
  kind: container
  image: python:3.12-slim
  command: [python, -c]
  args: ["print(open('/in/orders.csv').read())"]
  env: {TOKEN: "{{ ctx.token }}"}
  volumes: ["{{ ctx.folder }}:/in:ro"]
  resources: {cpus: 1, memory: 512m}
  network: none
  timeout: 10m
""",
)
