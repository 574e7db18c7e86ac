"""The reference of the command line, from the commands themselves: `python -m docs.build.cli_page` prints it."""

import sys
from collections.abc import Iterator

import click

from refold.cli.app import refold

HEAD = """\
# The command line

This page is printed from the commands themselves, by `python -m docs.build.cli_page`; do not edit it.

Data goes to stdout, progress and messages go to stderr. `-o json` prints one document, `-o jsonl` one object a line.
`RUN` is an id, the beginning of one, or a name. Colours are used on terminals; `NO_COLOR` and `FORCE_COLOR` are obeyed.
On a terminal `refold run` draws a tree, elsewhere it writes a line for each change.

Commands that only look (`runs list`, `show`, `history`, `watch`, `logs`, `why`, `items`, `record`, `gates list`,
`show`, `dlq list`, `show`, `feed`, `db info`, `check`, `doctor`) take no lock, change nothing, and work
while another process writes, is stopped or hangs; a file that may only be read can be looked at.

Control codes are never sent to a terminal: in names, messages and tables they are spelt out, like `\\x1b`, wherever
the output goes. Data is exact where stdout is a pipe or a file: the result of `refold run`, the lines of `runs logs`,
and all of `-o json` and `-o jsonl`. On a terminal they are spelt out there too, in JSON as `\\u001b`, which means the
same.

| exit code | meaning |
| --- | --- |
| 0 | all went well |
| 1 | the run failed or was cancelled, or a check found something |
| 2 | wrong usage, or an invalid playbook or value |
| 3 | there is no such run or file |
| 4 | conflict: the name means several runs, the run is not in a state for this, or the database is locked |
| 5 | the database cannot be used, or a row of it cannot be read; the row is named, and the others are shown |
| 6 | the run is paused, by a person or because its budget is used up; `refold runs resume` continues it |
| 70 | a bug; `--debug` shows where |
| 124 | the run exceeded its timeout, or `runs watch` exceeded its own |
| 130, 143, 129 | stopped by Ctrl-C, SIGTERM, or a closed terminal; `refold runs resume` continues the run |

`refold run` and `refold runs resume` stop in good order: the first Ctrl-C (or SIGTERM, or the end of the terminal)
lets steps finish for `REFOLD_STOP_GRACE` seconds (10), hands the rest back and prints the command that continues the
run; the second one kills. Either way, and after `kill -9`, nothing that was finished is lost or done again.
"""

AFTER = """\
## Data

`refold run -o json` and `refold runs show -o json` print one object: `id`, `name`, `workflow`, `status`, `key`,
`labels`, `continued_by` and `continues` (runs before and after it that `ctx.continue_with` joins), `result`,
`error`, `steps` (by name: `status`, `visits`, `attempts`, `result`, `error`; of a list loop whose items have not all
completed also `items` with counts, `rate` per second and seconds that are `left`), `usage`, `created_at`, `ended_at`;
of `runs show` also `stuck`, if no live worker has the code or the tool of a step, or if an internal error keeps the run
from continuing.
`refold runs list -o json` prints a list of `id`, `name`, `workflow`, `status`, `created_at`, `ended_at`. The status of
a run is one of `running`, `waiting`, `paused`, `ending`, `completed`, `failed`, `cancelled`, `continued`. Moments
are in UTC, like `2026-11-15T08:00:00.000000Z`; what has not happened is null. An error has `kind` and `message`, that
of a run also `step`, `visit` and `why`.

`refold runs why -o json` prints `id`, `status` and `reasons`. Each has a `step`, a `kind`, and what belongs to it:

| kind | what the step waits for |
| --- | --- |
| `running` | nothing: `worker` has it until `until`, unless the lease is extended |
| `slot` | the slots of the workers that could take it are busy; `worker` may have one free at `until` |
| `no_worker` | no worker is running that could take it; `note` is the Python workflow whose code it needs, if any |
| `no_code` | no live worker has the code; `note` is its workflow and plan, `sources` plans that workers have |
| `no_tool` | no live worker has the tool; `note` is which |
| `limit` | its limit is used up; `note` is which, `until` when its rate allows more |
| `rate` | the rate of its loop keeps it back, until `until` |
| `no_queue` | no live worker serves the queue; `note` is which |
| `paused` | the run is paused, `by` whom and `since` when |
| `backoff` | the try before has failed; the next is not before `until` |
| `parked` | it is parked until `until` or `signal` |
| `timer`, `signal` | a time or a message; `until` is when it ends at the latest |
| `gate` | a person's decision: `note` is what is asked, `assignee` who, `until` the deadline |
| `poll` | a condition that must become true, `note`; the next look is at `until` |
| `child` | the child `run` is not over |
| `window` | so many (`count`) items of a loop, or events of a step, wait for others |
| `order` | so many (`count`) items of a loop wait until others of it have completed |
| `batch` | so many (`count`) events wait for others, until there are `note` of them; `signal` is what they share |
| `join` | these `sources` are not over |
| `loop` | the loop of the steps in `sources` is not over |
| `final` | everything else: it runs at the end of the run |
| `stuck` | an internal error, `note`: a defect of Refold, not of a step. Reports are kept, and Refold tries again |
"""


def page() -> str:
    return "\n".join([HEAD, *_commands(refold, ("refold",)), AFTER])


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    ctx = click.Context(command, info_name=" ".join(path))
    if isinstance(command, click.Group):
        if len(path) == 1:
            yield f"## `{path[0]}`\n{_options(command)}"
        if command.invoke_without_command:
            yield _one(command, ctx, path)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from _commands(found, (*path, name))
    else:
        yield _one(command, ctx, path)


def _one(command: click.Command, ctx: click.Context, path: tuple[str, ...]) -> str:
    usage = " ".join([*path, *command.collect_usage_pieces(ctx)])
    return f"## `{' '.join(path)}`\n\n```\n{usage}\n```\n\n{_about(command)}\n{_options(command)}"


def _about(command: click.Command) -> str:
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _options(command: click.Command) -> str:
    rows = ["\n| option | about |", "| --- | --- |"]
    for option in command.params:
        if isinstance(option, click.Option):
            names = ", ".join(f"`{each}`" for each in option.opts)
            value = "" if option.is_flag else f" {option.metavar or _choices(option)}"
            rows.append(f"| {names}{value} | {option.help} |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def _choices(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " or ".join(f"`{each}`" for each in option.type.choices)
    return option.type.name.upper()


if __name__ == "__main__":
    sys.stdout.write(page())
