"""Every example, begun with `refold init` and run with the commands that it tells: its result, and its files."""

import gzip
import json
import re
import secrets
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from refold.cli.commands.examples import names
from tests.cli.program import refold, until
from tests.examples.beginning import begun, looked, ran, script, stand_in, told, under_way


def rows(database: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as db:
        return db.execute(query).fetchall()


def hello(folder: Path) -> None:
    first, second = told("hello")
    assert ran(folder, first).out == "3 people greeted\n"
    assert ran(folder, second).out == "1 people greeted\n"


def etl(folder: Path) -> None:
    [run] = told("etl")
    found = {row["region"]: row["orders"] for row in ran(folder, run).data["rows"]}
    assert found == {"north": 3, "south": 2, "west": 2}
    why = (folder / "rejected.csv").read_text().splitlines()
    assert why == ["id,why", "1004,no day: yesterday", "1006,no such customer: c9", "1008,no amount: twelve"]
    assert (folder / "sales.parquet").read_bytes()[:4] == b"PAR1"


def pages(folder: Path) -> None:
    [run] = told("pages")
    with stand_in(folder, "api.py", "0") as api:
        done = ran(folder, run, "-i", f"api={api}")
    assert (done.data["tickets"], done.data["pages"], done.data["oldest"][0]) == (23, 5, {"id": 4, "hours": 28})
    assert "fetch/1 issued, try 2" in looked(folder, ["runs", "history"])
    assert rows(folder / "tickets.db", "select count(*), count(distinct id) from tickets") == [(23, 23)]


def retries(folder: Path) -> None:
    run, dead, again = told("retries")
    assert refold(folder, *run).code == 1
    assert "'to be asked' is not an address" in looked(folder, dead)
    letter = folder / "invoices" / "07.json"
    letter.write_text(letter.read_text().replace("to be asked", "c7@example.com"))
    assert ran(folder, again).out == "9 invoices sent, 1125 in all\n"
    mails = sorted((folder / "sent").glob("*.txt"))
    assert [len(mail.read_text().splitlines()) for mail in mails] == [1] * 9


def approval(folder: Path) -> None:
    run, show, approve, resume = told("approval")
    ran(folder, run)
    assert "May we buy a laptop for 1850?" in looked(folder, show)
    assert "1 is less than the minimum" in looked(folder, approve, "-i", "cost_centre=1")
    assert "decided" in looked(folder, approve, "-o", "json")
    assert ran(folder, resume).data["rows"] == [{"what": "a laptop", "price": 1850.0, "centre": 4711}]
    cheap = ran(folder, ["run", "approval.yaml", "-i", "what=a pen", "-i", "price=3"])
    assert cheap.data["rows"] == [{"what": "a pen", "price": 3.0, "centre": 1000}]
    assert rows(folder / "orders.db", "select count(*) from orders") == [(2,)]


def report(folder: Path) -> None:
    [run] = told("report")
    assert ran(folder, run).data == {"file": "reports/2026-03-07.html", "visits": 2645, "orders": 84, "rate": 3.2}
    page = (folder / "reports" / "2026-03-07.html").read_text()
    assert page.count("<rect ") == 7 and "84 orders: 3.2 %" in page


def desk(folder: Path) -> None:
    plain, urgent, approve, resume = told("desk")
    assert ran(folder, plain).data["sent"].endswith("How do I log in?")
    assert refold(folder, *urgent).code == 0
    assert refold(folder, *approve).err.splitlines()[0] == "urgent ask: approve, decided"
    assert ran(folder, resume).data["sent"].endswith("The shop is down.")


def triage(folder: Path) -> None:
    [run] = told("triage")
    result = ran(folder, run).data
    assert result["steps"]["critic"]["context"] == "good"
    assert result["steps"]["each"]["context"] == "foreach each: 3 completed, 0 failed, 0 skipped of 3 reports"
    assert (folder / "notes-1.4.txt").read_text() == "Two crashes are corrected\n"
    assert sorted((folder / "urgent.txt").read_text().split()) == ["r1", "r3"]


def watcher(folder: Path) -> None:
    [run] = told("watcher")
    with under_way(folder, run, "--name", "stock") as process:
        until(lambda: process.poll() is not None or "arrive" in looked(folder, ["runs", "why", "stock"]))
        (folder / "delivery.csv").rename(folder / "inbox" / "delivery.csv")
        assert process.communicate(timeout=60)[0] == "3 articles from delivery.csv\n"
    assert (folder / "done" / "delivery.csv").exists()
    assert rows(folder / "stock.db", "select article, pieces from stock where article = 'B-9'") == [("B-9", 120)]


def scrape(folder: Path) -> None:
    [run] = told("scrape")
    with stand_in(folder, "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", "site") as site:
        done = ran(folder, run, "-i", f"site={site}")
    assert done.data == {"books": 3, "missing": ["gone.html"], "cheapest": "Knots & Splices"}
    assert (folder / "books.csv").read_text().splitlines()[1] == "Knots & Splices,12.0"


def training(folder: Path) -> None:
    [run] = told("training")
    model = ran(folder, run).data
    assert model["accuracy"] >= 0.93 and model["rounds"] > 1
    assert json.loads((folder / "model.json").read_text()) == model
    poor = refold(folder, *run, "-i", "wanted=1.01", "-o", "json")
    assert (poor.code, poor.data["error"]["kind"], poor.data["steps"]["train"]["visits"]) == (1, "quality", 40)


def backup(folder: Path) -> None:
    [run] = told("backup")
    script(folder, "fill.py")
    (folder / "backups").mkdir()
    old = [f"shop-2020010{n}T000000000000Z.db.gz" for n in range(1, 5)]
    for name in old:
        (folder / "backups" / name).touch()
    done = ran(folder, run).data
    assert [name in done["kept"] for name in old] == [False, False, True, True]
    assert sorted(path.name for path in (folder / "backups").iterdir()) == done["kept"]
    (folder / "copy.db").write_bytes(gzip.decompress((folder / done["made"]).read_bytes()))
    assert rows(folder / "copy.db", "select count(*) from orders") == [(100,)]


def review(folder: Path) -> None:
    run, show, again, goes_on, publish, ends = told("review")
    with stand_in(folder, "fake_llm.py", "0") as llm:
        ran(folder, [*run, "-i", f"llm={llm}/v1"])
        assert "Logs that follow you" in looked(folder, show)
        assert "decided" in looked(folder, again, "-o", "json")
        ran(folder, goes_on)
        assert "Live logs" in looked(folder, show)
        assert "decided" in looked(folder, publish, "--by", "eve", "-o", "json")
        assert ran(folder, ends).out == "Live logs\n"
    assert (folder / "note.md").read_text().endswith("Live logs; retries with jitter.\n\nReviewed by eve.\n")
    assert json.loads(looked(folder, ["runs", "show", "note", "-o", "json"]))["usage"]["tokens"] > 40


def inbox(folder: Path) -> None:
    [run] = told("inbox")
    done = ran(folder, [*run, "--name", "mails"]).data
    assert done == {"folders": ["support", "money", "other"], "answers": ["Dear Ada, we are on it."]}
    history = looked(folder, ["runs", "items", "mails", "sort", "-o", "json"])
    assert [each["result"]["tries"] for each in json.loads(history)] == [1, 1, 2]


def regions(folder: Path) -> None:
    [run] = told("regions")
    west = folder / "sales" / "west.csv"
    whole = west.read_text()
    west.write_text("order,amount\n")
    assert refold(folder, *run, "--name", "sums").code == 1
    assert "sales/west.csv has no orders" in looked(folder, ["dlq", "list"])
    west.write_text(whole)
    done = ran(folder, ["runs", "retry", "sums"]).data
    assert done == {"amount": 635.25, "orders": 6, "best": "south", "share_of_best": 0.559}


def saga(folder: Path) -> None:
    lisbon, oslo = told("saga")
    assert ran(folder, lisbon).out == "no trip to Lisbon: no car left\n"
    free = "select free from places where city = 'Lisbon' order by what"
    assert rows(folder / "agency.db", free) == [(0,), (9,), (4,)]
    assert ran(folder, oslo).out == "a trip to Oslo is booked\n"
    assert rows(folder / "agency.db", "select what, city from bookings order by what") == [
        ("car", "Oslo"),
        ("flight", "Oslo"),
        ("hotel", "Oslo"),
    ]


def secrets_(folder: Path) -> None:
    by_reference, by_keychain = told("secrets")
    env = {"REFOLD_SECRET_SHOP_TOKEN": secrets.token_urlsafe(24)}
    with stand_in(folder, "api.py", "0", **env) as api:
        first = ran(folder, by_reference, "-i", f"api={api}", **env)
        second = ran(folder, by_keychain, "-i", f"api={api}", **env)
    assert first.data == {"orders": 2, "signature": "genuine", "leak_stopped_as": "secret"}
    assert second.data == {"orders": 2}
    written = (
        b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()) + (first.err + second.err).encode()
    )
    assert env["REFOLD_SECRET_SHOP_TOKEN"].encode() not in written
    assert "no provider has a secret `shop-token`" in looked(folder, ["run", str(folder / by_reference[1])])


def pipeline(folder: Path) -> None:
    [run] = told("pipeline")
    with stand_in(folder, "api.py", "0") as api:
        assert ran(folder, run, "-i", f"api={api}").data == {"days": 2, "empty": 1, "kwh": 8.5}


def quorum(folder: Path) -> None:
    [run] = told("quorum")
    assert ran(folder, run).data == {"price": 71.7, "of": 2, "without": ["beta"]}
    (folder / "feeds" / "alpha.json").unlink()
    assert ran(folder, run).out.startswith("no price: ")


def noetl(folder: Path) -> None:
    [run] = told("noetl")
    assert ran(folder, run).data == {"advice": "1 of 3 cities are warm", "highest": 16.5}


def quality(folder: Path) -> None:
    good, doubtful = told("quality")
    assert ran(folder, good).out == "95.0 % of 20 rows are good\n"
    assert (folder / "accepted" / "measurements.csv").exists()
    refused = refold(folder, *doubtful)
    assert (refused.code, "doubtful.csv is in quarantine: 60 is below 90" in refused.err) == (1, True)
    assert [path.name for path in (folder / "quarantine").iterdir()] == ["doubtful.csv"]


def sync(folder: Path) -> None:
    first, second = told("sync")
    script(folder, "shop.py", "7")
    assert ran(folder, first).data == {"copied": 7, "last": 7}
    script(folder, "shop.py", "2")
    assert ran(folder, second).data == {"copied": 2, "last": 9}
    assert rows(folder / "warehouse.db", "select count(*), max(id) from orders") == [(9, 9)]


def fanout(folder: Path) -> None:
    run, failed = told("fanout")
    assert ran(folder, run).data == {"loaded": 11, "failed": ["t2"]}
    assert "call us" in looked(folder, failed)
    assert rows(folder / "catalogue.db", "select depth, count(*) from things group by 1") == [(1, 2), (2, 3), (3, 6)]


CHECKS: dict[str, Callable[[Path], None]] = {
    "approval": approval,
    "backup": backup,
    "etl": etl,
    "fanout": fanout,
    "hello": hello,
    "inbox": inbox,
    "noetl": noetl,
    "pages": pages,
    "pipeline": pipeline,
    "quality": quality,
    "quorum": quorum,
    "regions": regions,
    "report": report,
    "retries": retries,
    "review": review,
    "saga": saga,
    "scrape": scrape,
    "secrets": secrets_,
    "sync": sync,
    "training": training,
    "desk": desk,
    "triage": triage,
    "watcher": watcher,
}


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_the_example_does_what_it_says(name: str, tmp_path: Path) -> None:
    CHECKS[name](begun(tmp_path, name))


def test_there_are_enough_examples_and_each_is_run() -> None:
    assert sorted(names()) == sorted(CHECKS) and len(names()) > 15


def test_an_example_that_is_killed_goes_on_and_copies_every_row_once(tmp_path: Path) -> None:
    folder = begun(tmp_path, "sync")
    [run, _] = told("sync")
    script(folder, "shop.py", "120")
    with under_way(folder, run, "-i", "batch=1", "--name", "copying") as process:
        until(lambda: process.poll() is not None or copied(folder) >= 5)
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    before = copied(folder)
    assert 5 <= before < 120
    assert ran(folder, ["runs", "resume", "copying"]).data == {"copied": 120, "last": 120}
    assert copied(folder) == 120
    history = looked(folder, ["runs", "history", "copying"])
    stored = re.findall(r"\bstore/(\d+)\b.* succeeded", history)
    assert len(stored) == len(set(stored)) == 120


def copied(folder: Path) -> int:
    try:
        found: int = rows(folder / "warehouse.db", "select count(*) from orders")[0][0]
    except sqlite3.OperationalError:
        return 0  # not there yet
    return found
