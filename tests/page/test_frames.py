"""The slider of the page: the rows that it draws from frames are those of the fold, after every fact of random logs."""

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from msgspec import json

from refold.core.facts import RunMigrated, RunStarted
from refold.core.plan import canonical
from refold.core.read.summary import progress
from refold.core.state import TERMINAL
from refold.ports import Views
from refold.server.access import PERMISSIONS, Credential
from refold.server.history import FramesQuery, frames_object, rows_object
from refold.server.moments import Moments
from refold.server.routes import Call
from refold.server.runs import step_object
from tests.core.test_whatever_comes import Drive
from web.build_page import ROOT, Programs

LOGS = 200


class LogViews:
    """A log and its plan, read as from a store."""

    def __init__(self, drive: Drive) -> None:
        self.log = drive.run.log
        self.plans = {fact.plan: canonical(drive.plan) for _, _, fact in self.log if isinstance(fact, RunStarted)}
        assert not any(isinstance(fact, RunMigrated) for _, _, fact in self.log)

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Any]:
        return self.log[after:] if limit is None else self.log[after : after + limit]

    def plan(self, hash: str) -> bytes | None:
        return self.plans.get(hash)


def caller() -> Call:
    credential = Credential("t", "ann", "admin", frozenset(PERMISSIONS))
    return cast(Call, SimpleNamespace(credential=credential))


def driven(seed: int) -> Drive:
    drive = Drive(seed)
    for _ in range(40):
        if drive.run.state.life in TERMINAL:
            break
        drive.disturb()
    return drive


def expected(moments: Moments, head: int, call: Call) -> list[dict[str, Any]]:
    found = []
    for number in range(1, head + 1):
        graph, state, (_, at, _) = moments.at("run", number)
        shown = progress(graph, state, at)
        rows = rows_object(shown, call)
        assert rows["steps"] == [step_object(each, call, at) for each in shown.rows]
        found.append({"number": number, "status": rows["status"], "rows": rows["steps"]})
    return found


def test_the_rows_of_frames_equal_the_fold_after_every_fact_of_200_random_logs(tmp_path: Path) -> None:
    call = caller()
    chance = random.Random(7)
    logs: list[dict[str, Any]] = []
    folded: list[list[dict[str, Any]]] = []
    for seed in range(LOGS):
        views = cast(Views, LogViews(driven(seed)))
        head, moments, pieces, after = len(views.facts("run")), Moments(views), list[dict[str, Any]](), 0
        while after < head:
            limit = chance.choice([1, 3, 10, 500])
            pieces.append({"after": after, **frames_object(call, moments, "run", FramesQuery(after, limit))})
            after += len(pieces[-1]["frames"])
        logs.append({"head": head, "pieces": pieces})
        folded.append(expected(moments, head, call))
    (tmp_path / "logs.json").write_bytes(json.encode(logs))
    programs, web = Programs(), ROOT / "web"
    programs.install(web)
    script = str(Path(__file__).with_name("frames.mjs"))
    programs.run_node(tmp_path, script, str(web), str(tmp_path / "logs.json"), str(tmp_path / "drawn.json"))
    drawn = json.decode((tmp_path / "drawn.json").read_bytes())
    known = json.decode(json.encode(folded))
    assert sum(len(each) for each in known) > 10 * LOGS
    for seed, (each, truth) in enumerate(zip(drawn, known, strict=True)):
        for order in ("forwards", "jumping"):
            for moment, wanted in zip(each[order], truth, strict=True):
                assert {name: moment[name] for name in wanted} == wanted, (seed, order, wanted["number"])
