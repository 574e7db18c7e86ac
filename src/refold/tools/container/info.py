"""What the tool `container` is for its authors: its keys, its result, an example, and its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem
from refold.tools.shared_keys import programs_in


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
    about="Runs a container with the program `docker`, and removes it afterwards. Its name is made from the idempotency"
    " key, so that another try can end a container that an earlier one left. When time is up, it is killed."
    " The environment has REFOLD_RUN, REFOLD_STEP, REFOLD_ATTEMPT and REFOLD_IDEMPOTENCY_KEY. An exit code that is not"
    " in `ok_codes` is a failure of kind `exit`. A failure of docker itself is of kind `container`, or `connection` if"
    " docker cannot be reached.",
    keys=(
        ToolKey(name="image", type="text", required=True, about="the image, such as `python:3.12-slim`"),
        ToolKey(name="command", type="list", about="the program to run in place of the image's entry point"),
        ToolKey(name="args", type="list", about="its arguments; each value is one argument, whatever it contains"),
        ToolKey(
            name="env",
            type="any",
            about="variables, as a map or as a list of `{name, value}`. Only the container gets them: docker itself"
            " does not, and its arguments do not show their values, so this is the place for secrets",
        ),
        ToolKey(
            name="volumes",
            type="list",
            about="folders to mount, such as `/data/in:/in:ro`, or `{source, target, read_only}`",
        ),
        ToolKey(name="resources", type="map", about="`{cpus, memory}`, such as `{cpus: 1.5, memory: 512m}`"),
        ToolKey(name="network", type="text", about="the network of the container; `none` for none"),
        ToolKey(name="user", type="text", about="the user in the container, such as `1000:1000`"),
        ToolKey(name="cwd", type="text", about="the folder in which the program runs"),
        ToolKey(name="stdin", type="any", about="its standard input: text as it is, other values as JSON"),
        ToolKey(
            name="pull",
            type="text",
            choices=("missing", "always", "never"),
            about="when the image is fetched (`missing`)",
        ),
        ToolKey(
            name="max_output",
            type="integer",
            about="bytes of each stream that are kept: half from its beginning, half from its end (1048576)",
        ),
        ToolKey(name="ok_codes", type="list", about="exit codes that are not a failure ([0])"),
        ToolKey(
            name="timeout", type="duration", about="for the whole call; without it, only the limit of the step counts"
        ),
    ),
    result="`{exit_code, stdout, stderr, truncated, name, image}`: both streams, with a mark where bytes were"
    " left out, and how many",
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
