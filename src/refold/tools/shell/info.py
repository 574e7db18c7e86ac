"""What the tool `shell` is for its authors: its keys, its result, an example, and its checks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem
from refold.tools.shared_keys import first_value, one_of, programs_in

NO_SPLICING = 'pass the value in `env` and write "$NAME", or as one of `args` and write "$1"'


def check_shell(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*one_of(keys, "command", "script"), *_command(keys), *_script(keys)]


def _command(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    command, by_shell = keys.get("command"), keys.get("shell") is True
    if isinstance(command, str) and by_shell:
        yield from _spliced("command", command)
    elif isinstance(command, str) and not _is_one_expression(command):
        hint = "write a list, [program, argument, ...], or a `script` for a shell"
        yield ToolProblem("command", "a command is a list of the program and its arguments", hint)
    elif isinstance(command, list) and by_shell:
        yield ToolProblem("shell", "a shell takes text, not a list", "write `script`, or remove `shell`")
    elif isinstance(command, list) and not command:
        yield ToolProblem("command", "the command is empty", "write [program, argument, ...]")
    if isinstance(command, list) and keys.get("args") is not None:
        yield ToolProblem("args", "`args` belong to a script", "add them to the list of the command")


def _is_one_expression(text: str) -> bool:
    """Whether the text is one expression, whose value is the list."""
    return text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1


def _script(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    script = keys.get("script")
    if isinstance(script, str):
        yield from _spliced("script", script)


def _spliced(key: str, text: str) -> Iterator[ToolProblem]:
    """Yield a problem for a value in the text of a shell, which could be read as a command."""
    place = first_value(text)
    if place is not None:
        yield ToolProblem(key, "no value may be put into the text of a shell command", NO_SPLICING, *place)


def _values(key: str, text: Any) -> Iterator[ToolProblem]:
    from refold.tools.shell import noetl_text  # loaded only for NoETL files

    return noetl_text.problems(key, text)


SHELL = ToolInfo(
    kind="shell",
    about="Runs a program. An exit code that is not in `ok_codes` is a failure of kind `exit`. Processes that"
    " the program leaves running are ended with it. The environment has REFOLD_RUN, REFOLD_STEP, REFOLD_ATTEMPT and"
    " REFOLD_IDEMPOTENCY_KEY.",
    keys=(
        ToolKey(
            name="command",
            type="any",
            about="the program and its arguments, as a list; each value is one argument, whatever it contains. Text is"
            " allowed only with `shell: true`, and then without expressions",
        ),
        ToolKey(
            name="script",
            type="text",
            static=True,
            about="text for `/bin/sh -e`, which ends at the first line that fails; taken as it is written",
        ),
        ToolKey(name="args", type="list", about="arguments of the script: `$1`, `$2` and so on"),
        ToolKey(name="shell", type="bool", static=True, about="whether a command that is text is run by `/bin/sh`"),
        ToolKey(name="cwd", type="text", about="where it runs, relative to the folder of the run (that folder)"),
        ToolKey(name="env", type="map", about="variables that are added to the environment"),
        ToolKey(name="stdin", type="any", about="its standard input: text as it is, other values as JSON"),
        ToolKey(name="encoding", type="text", static=True, about="the encoding of its input and output (utf-8)"),
        ToolKey(
            name="max_output",
            type="integer",
            about="bytes of each stream that are kept: half from its beginning, half from its end (1048576)",
        ),
        ToolKey(
            name="stdout_file",
            type="text",
            about="a file, relative to `cwd`, that gets the standard output instead. It appears under its name when the"
            " program has succeeded",
        ),
        ToolKey(name="ok_codes", type="list", about="exit codes that are not a failure ([0])"),
    ),
    result="`{exit_code, stdout, stderr, truncated}`: both streams, and how many bytes were left out. Of a"
    " stream longer than `max_output` the middle is left out, and a mark says how many bytes that were. With"
    " `stdout_file` also `stdout_file`, its path, and `stdout_bytes`",
    result_keys=("exit_code", "stdout", "stderr", "truncated", "stdout_file", "stdout_bytes"),
    check=check_shell,
    check_noetl_text=_values,
    check_programs=programs_in("command"),
    example="""\
tool:
  kind: shell
  command: [wc, -l, "{{ ctx.file }}"]
---
tool:
  kind: shell
  env: {TARGET: "{{ ctx.folder }}"}
  args: ["{{ ctx.name }}"]
  script: |
    mkdir -p "$TARGET"
    tar -czf "$TARGET/$1.tar.gz" .
""",
)
