"""What commands say about the start of a run that exists: it has the key already, or its file has changed since."""

import os
import shlex
from collections.abc import Sequence

from refold.cli import output as out
from refold.cli import words
from refold.cli.commands.playbooks import load
from refold.cli.settings import db_argument
from refold.core.facts import RunStarted
from refold.core.plan import plan_hash
from refold.core.read.summary import Summary
from refold.core.state import CANCELLED, FAILED, TERMINAL
from refold.errors import RefoldError
from refold.playbooks.bindings import Bindings
from refold.playbooks.playbook import Lookups, read
from refold.ports import Views
from refold.queries.runs import run_label
from refold.tools.catalog import installed_tools

WF = ".wf"


def taken_key_text(row: Summary, key: str, db: str) -> str:
    """Say that a key has its run, and how that stands."""
    name = out.printable(run_label(row))
    has = f"run {name} has the key {out.printable(key)!r} already"
    if row.status not in TERMINAL:
        return f"{has} and is {row.status}: no other run is started"
    how = "and was cancelled" if row.status == CANCELLED else f"and {row.status}"
    text = f"{has} {how} at {words.moment(row.ended_at)}: no other run is started"
    if row.status not in (FAILED, CANCELLED):
        return text
    return f"{text}; `refold runs retry {shlex.quote(run_label(row))}{db_argument(db)}` continues it"


def other_inputs_text(run: str, key: str, differ: Sequence[str]) -> str:
    names, held = ", ".join(map(out.printable, differ)), out.printable(key)
    return (
        f"warning: run {out.printable(run)} has the key {held} and was started with other inputs ({names}), which stay"
    )


def changed_file_text(views: Views, row: Summary) -> str:
    """Say that the file of a run is not as the run knows it; empty if it is, or if that cannot be found out."""
    first = next(iter(views.facts(row.run, 0, 1)), None)
    if first is None or not isinstance(first[2], RunStarted):
        return ""
    file = first[2].file
    path = os.path.join(first[2].folder, file)
    if not file or file.endswith(WF) or not os.path.isfile(path):
        return ""
    asked_bindings = False

    def bindings() -> Bindings:
        nonlocal asked_bindings
        asked_bindings = True  # who answers for agents was said on the command line of the start
        return Bindings()

    from refold.sources.catalog import installed_sources

    shown = out.printable(file)
    try:
        now = read(load(path), path, installed_tools(), load, **Lookups(bindings=bindings, sources=installed_sources))
    except RefoldError:
        why = f"`refold validate {shlex.quote(file)}` says why"
        return f"{shown} has changed and cannot be used as it is now ({why}): the run continues as it was"
    if asked_bindings or plan_hash(now.plan) == row.plan:
        return ""
    return f"{shown} has changed: the run continues as it was; `--with {shlex.quote(file)}` uses the file as it is now"
