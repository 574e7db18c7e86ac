"""Each command that looks or steers works on a file and through a server, with the same output and exit code."""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec import json

from tests.cli.in_process import command, here
from tests.cli.program import Done
from tests.client.served import Served, served
from tests.server.conftest import write_playbooks
from web.build_page import ROOT, build

MORE = {
    "halves": "workflow:\n  - step: each\n    loop: {in: [1, 0, 2], iterator: n, key: 'k{{ n }}'}\n"
    "    tool: {kind: python, input: {n: '{{ n }}'}, code: 'result = 10 / n'}\n",
    "vote": "workflow:\n  - step: ok\n    tool: {kind: gate, prompt: sure?, min_approvals: 2}\n",
}
DAILY = "apiVersion: refold/v1\nkind: Schedule\nmetadata: {name: daily}\nworkflow: greet.yaml\ncron: 30 7 * * *\n"
JANUARY = ("--from", "2026-01-01T00:00:00Z", "--until", "2026-01-03T00:00:00Z")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Two equal databases with runs of every kind."""
    folder = tmp_path_factory.mktemp("first")
    write_playbooks(folder)
    for name, text in MORE.items():
        head = f"apiVersion: refold/v1\nkind: Playbook\nmetadata: {{name: {name}}}\n"
        (folder / f"{name}.yaml").write_text(head + text)
    (folder / "daily.yaml").write_text(DAILY)
    with here(folder):
        for name in ("greet", "broken", "prints", "halves"):
            command("run", f"{name}.yaml", "--name", name, "--label", "team=x", "--quiet")
        for name in ("ask", "vote", "listen"):
            for number in ("1", "2"):
                command("run", f"{name}.yaml", "--name", name + number, "--until-waiting", "--quiet")
        command("run", "listen.yaml", "--name", "queued", "--detach", "--quiet", "--key", "order-7")
        command("schedules", "create", "daily.yaml")
        command("db", "vacuum")
    other = tmp_path_factory.mktemp("other") / "same"
    shutil.copytree(folder, other)
    yield folder, other


@pytest.fixture(scope="module")
def server(folders: tuple[Path, Path]) -> Iterator[Served]:
    with served(folders[1] / "refold.db", folders[1]) as opened:
        yield opened


class Ways:
    """A command, in a folder with a file, and in one that only knows the server."""

    def __init__(self, folders: tuple[Path, Path], server: Served, token: str) -> None:
        self.folders, self.server, self.token = folders, server, token

    def on_file(self, arguments: Sequence[str], same: bool = False) -> Done:
        with here(self.folders[1 if same else 0]), pytest.MonkeyPatch.context() as patch:
            patch.delenv("REFOLD_DEBUG")
            return command(*arguments)

    def through_server(self, arguments: Sequence[str]) -> Done:
        with here(self.folders[0]), pytest.MonkeyPatch.context() as patch:
            patch.delenv("REFOLD_DEBUG")
            patch.setenv("REFOLD_SERVER", self.server.address)
            patch.setenv("REFOLD_TOKEN", self.token)
            return command(*arguments)


@pytest.fixture(scope="module")
def ways(folders: tuple[Path, Path], server: Served) -> Ways:
    return Ways(folders, server, server.token())


def shown(done: Done, server: str) -> tuple[int, str, str]:
    """What was printed, without moments and spans, and without what names the place."""
    return done.code, plain(done.out, server), plain(done.err, server)


def plain(text: str, server: str) -> str:
    text = re.sub(rf" --server {re.escape(server)}", "", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "MOMENT", text)
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "CLOCK", text)
    text = re.sub(r"\b\d+(\.\d+)? ?(ms|s|min|h)\b( \d+ ?(s|min))?", "SPAN", text)
    text = re.sub(r'"(seconds|rate|left)":[0-9.e-]+', r'"\1":0', text)
    return re.sub(r" +", " ", text)


LOOKS = [
    ["runs", "list"],
    ["runs", "list", "-o", "json"],
    ["runs", "list", "-o", "jsonl", "--status", "failed"],
    ["runs", "list", "--status", "queued"],
    ["runs", "list", "--label", "team=x", "-n", "2"],
    ["runs", "list", "--workflow", "listen", "--unserved"],
    ["runs", "list", "--error", "division"],
    ["runs", "list", "--parent", "greet"],
    ["runs", "list", "--since", "2h", "--key", "order-7"],
    ["runs", "list", "--since", "soon"],
    ["runs", "list", "--status", "odd"],
    ["runs", "show", "greet"],
    ["runs", "show"],
    ["runs", "show", "halves", "-o", "json"],
    ["runs", "show", "broken"],
    ["runs", "show", "ask1", "--graph"],
    ["runs", "show", "nobody"],
    ["runs", "show", "gret"],
    ["runs", "show", "a/b"],
    ["runs", "history", "halves"],
    ["runs", "history", "greet", "-o", "jsonl"],
    ["runs", "history", "greet", "--after", "2"],
    ["runs", "why", "listen1"],
    ["runs", "why", "ask1", "-o", "json"],
    ["runs", "why", "greet"],
    ["runs", "logs", "prints"],
    ["runs", "logs", "prints", "--tail", "1", "-o", "json"],
    ["runs", "logs", "prints", "--step", "other"],
    ["runs", "items", "halves"],
    ["runs", "items", "halves", "--step", "each", "-o", "json"],
    ["runs", "items", "greet"],
    ["runs", "watch", "greet", "--progress", "lines"],
    ["runs", "watch", "listen1", "--timeout", "0", "-q"],
    ["runs", "watch", "broken", "-o", "json", "-q"],
    ["runs", "record", "halves"],
    ["gates", "list"],
    ["gates", "list", "-o", "json", "-n", "3"],
    ["gates", "show", "ask1"],
    ["gates", "show", "vote1", "-o", "json"],
    ["gates", "show", "greet"],
    ["dlq", "list"],
    ["dlq", "list", "-o", "json"],
    ["dlq", "show", "0000"],
    ["schedules", "list"],
    ["schedules", "list", "-o", "json"],
    ["schedules", "show", "daily"],
    ["schedules", "show", "nothing"],
    ["schedules", "preview", "daily", "-n", "3", "--from", "2026-03-01T00:00:00Z"],
    [
        "schedules",
        "backfill",
        "daily",
        "--from",
        "2026-01-01T00:00:00Z",
        "--until",
        "2026-01-03T00:00:00Z",
        "--dry-run",
    ],
    ["runs", "migrate", "listen1", "--to", "ask.yaml", "--dry-run"],
    ["runs", "prune", "--older-than", "100d"],
    ["dlq", "redrive", "--all", "--dry-run"],
]


@pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
def test_a_look_is_the_same_on_the_file_and_through_its_server(ways: Ways, arguments: list[str]) -> None:
    there, address = ways.through_server(arguments), ways.server.address
    if "migrate" in arguments:
        arguments = [str(ways.folders[1] / "ask.yaml") if each == "ask.yaml" else each for each in arguments]
    assert shown(there, address) == shown(ways.on_file(arguments, same=True), address)


STEERS = [
    ["dlq", "dismiss", "0000"],
    ["dlq", "dismiss", "FIRST"],
    ["dlq", "list", "-o", "json"],
    ["runs", "pause", "listen1"],
    ["runs", "resume", "listen1", "--detach"],
    ["runs", "signal", "listen1", "go", "5"],
    ["runs", "signal", "listen2", "go", "-i", "a=1", "-o", "json"],
    ["runs", "signal", "greet", "go"],
    ["runs", "cancel", "queued", "--reason", "enough"],
    ["runs", "cancel", "greet"],
    ["runs", "retry", "greet", "--detach"],
    ["runs", "retry", "broken", "--detach"],
    ["runs", "retry", "halves", "--step", "each", "--item", "k0", "--detach"],
    ["runs", "retry", "queued", "--from", "nothing", "--detach"],
    ["gates", "approve", "vote1", "--feedback", "fine"],
    ["gates", "approve", "vote1"],
    ["gates", "reject", "vote2", "-o", "json"],
    ["gates", "approve", "ask1"],
    ["gates", "approve", "ask1", "--option", "odd"],
    ["gates", "answer", "ask2", "x", "1"],
    ["dlq", "redrive", "--run", "broken"],
    ["schedules", "pause", "daily", "--note", "holidays"],
    ["schedules", "resume", "daily"],
    ["schedules", "pause", "nothing"],
    ["schedules", "trigger", "daily", "-o", "json"],
    [
        "schedules",
        "backfill",
        "daily",
        "--from",
        "2026-01-01T00:00:00Z",
        "--until",
        "2026-01-03T00:00:00Z",
        "--id",
        "b",
    ],
    ["schedules", "backfill", "daily", "--stop", "b"],
    ["schedules", "create", "daily.yaml"],
    ["schedules", "create", "daily.yaml", "--replace"],
    ["runs", "migrate", "listen2", "--to", "vote.yaml"],
    ["run", "listen.yaml", "--key", "order-9", "--name", "nine", "--detach"],
    ["run", "listen.yaml", "--key", "order-9", "--name", "nine", "--detach"],
    ["run", "nothing.yaml", "--detach"],
    ["shares", "set", "acme", "3"],
    ["shares", "set", "acme", "0"],
    ["shares", "list"],
    ["shares", "set", "acme", "1"],
    ["shares", "list", "-o", "json"],
    ["limits", "set", "api/v1 ä", "--slots", "2", "--rate", "20/s", "--burst", "3"],
    ["limits", "set", "api/v1 ä", "--slots", "-1"],
    ["limits", "set", "rate:x", "--slots", "1"],
    ["limits", "set", "db", "--rate", "5/h"],
    ["limits", "list"],
    ["limits", "remove", "api/v1 ä"],
    ["limits", "remove", "api/v1 ä"],
    ["limits", "list", "-o", "json"],
    ["runs", "delete", "greet"],
    ["runs", "delete", "ask2"],
    ["schedules", "delete", "daily"],
    ["runs", "list", "-o", "json"],
]


def test_each_request_has_the_same_answer_and_the_same_effect(ways: Ways) -> None:
    """One after the other, on equal databases: the list at the end shows that both did the same."""
    first = ways.on_file(["dlq", "list", "-o", "json"]).data[0]["fingerprint"]
    for words in STEERS:
        arguments = [first if each == "FIRST" else each for each in words]
        there, on_file = ways.through_server(arguments), ways.on_file(arguments)
        address = ways.server.address
        same = [without_new_ids(each, arguments) for each in (shown(there, address), shown(on_file, address))]
        assert same[0] == same[1], arguments


def without_new_ids(done: tuple[int, str, str], arguments: Sequence[str]) -> tuple[int, str, str]:
    """A run that a schedule starts has another planned time on each side, and so another id and name."""
    if "trigger" not in arguments and "list" not in arguments:
        return done
    code, out, err = done
    return code, re.sub(r'"(id|run)": "[0-9a-f]{32}"|daily-MOMENT', "ID", out), err


@pytest.mark.parametrize("run", ["halves", "ask1", "broken"])
def test_a_run_is_exported_from_a_server_as_from_its_database(ways: Ways, run: str, tmp_path: Path) -> None:
    build(ROOT)
    both: list[Callable[[list[str]], Done]] = [partial(ways.on_file, same=True), ways.through_server]
    for form in ([], ["--html"]):
        found = []
        for number, way in enumerate(both):
            file = tmp_path / f"{number}{len(form)}"
            done = way(["runs", "export", run, *form, "-o", str(file)])
            assert done.code == 0, done.err
            assert f"{run} is in {file}" in done.err
            found.append(file.read_bytes())
        if form:
            assert all(each.lstrip()[:15].lower() == b"<!doctype html>" and run.encode() in each for each in found)
        else:
            first, second = map(json.decode, found)
            assert first == second


def test_who_may_not_see_values_exports_nothing_from_a_server(
    folders: tuple[Path, Path], server: Served, tmp_path: Path
) -> None:
    build(ROOT)
    viewer = Ways(folders, server, server.token("viewer", "eve"))
    for form in ([], ["--html"]):
        done = viewer.through_server(["runs", "export", "prints", *form, "-o", str(tmp_path / "none")])
        assert (done.code != 0, "`values`" in done.err, (tmp_path / "none").exists()) == (True, True, False), done.err
