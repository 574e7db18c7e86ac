"""The benchmarks run, and say what they say of a file that is written as it is in earnest."""

import re
import sys
from pathlib import Path

import msgspec
import pytest

from bench import peer_runs, python_workflows
from bench.durable import Bench, measure_durable
from bench.transfer_cost import measure as measure_transfer


def test_a_workload_is_told_with_what_it_wrote_and_how_safely() -> None:
    bench = measure_durable("many_runs", quick=True)
    (figure,) = bench.figures
    assert figure.written is not None
    assert figure.written.facts == 500 * 8 and figure.written.rows > figure.written.facts
    assert figure.written.syncs >= figure.written.commits > 0
    assert figure.written.synchronous == 2 and bench.synchronous == {2}


async def test_a_transfer_is_told_beside_the_copy_of_the_same_file() -> None:
    cost = await measure_transfer(rows=1000, times=1)
    assert cost.rows == 1000 and cost.copy > 0 and cost.transfer > 0


def test_python_workflows_are_told_with_what_they_wrote_and_how_safely(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path))
    bench.repeats = 1
    python_workflows.durable(bench, 20, 5)
    chains, fans, runs, latencies = (bench.figures[at : at + 2] for at in range(0, 8, 2))  # with events, and as a flow
    for one, many in zip(chains, fans, strict=True):
        assert one.written is not None and many.written is not None
        assert one.written.synchronous == many.written.synchronous == 2 and bench.synchronous == {2}
        assert one.written.commits >= 20 > many.written.commits
    assert all(each.written is not None and each.written.facts > 5 * 3 for each in runs)
    assert all(each.value > 0 for each in latencies)


def test_the_report_says_where_the_time_of_a_step_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python_workflows.where_time_goes(Bench(str(tmp_path)), "chain", python_workflows.chain(5), 5)
    told = capsys.readouterr().out
    assert all(f"{room} " in told for room in ("core/decide", "runtime", "stores/sqlite")), told


@pytest.mark.parametrize("workload", python_workflows.WORKLOADS)
def test_a_workload_is_told_as_the_peers_tell_theirs(workload: str) -> None:
    told = msgspec.json.decode(python_workflows.line(workload, 20))
    assert {"peer", "workload", "durable", "n", "seconds", "rate", "rss_mb"} == told.keys()
    assert (told["workload"], told["n"]) == (workload, 20) and told["rate"] > 0


@pytest.mark.parametrize("peer", peer_runs.PEERS, ids=lambda peer: peer.name)
def test_a_peer_has_a_script_and_every_package_of_it_is_pinned(peer: peer_runs.Peer) -> None:
    assert peer.script.exists() and peer.wanted.keys() == python_workflows.WORKLOADS.keys()
    pins = peer.pins.read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", each) for each in pins)
    assert any(each.startswith(f"{peer.package}==") for each in pins)


def test_a_peer_that_does_not_run_here_is_told_with_the_reason(tmp_path: Path) -> None:
    peer = peer_runs.Peer("llamaindex", "llama-index-workflows", "no_such_module", {})
    (tmp_path / peer.name / "bin").mkdir(parents=True)
    (tmp_path / peer.name / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / peer.name / "pins.txt").write_text(peer.pins.read_text())
    why = peer_runs.prepared(peer, tmp_path)
    assert isinstance(why, str) and "does not run here" in why and "no_such_module" in why


def test_a_median_below_what_is_wanted_is_a_miss(capsys: pytest.CaptureFixture[str]) -> None:
    peer_runs.show(peer_runs.Side("blazen", "w1", 1000, [0.7, 0.75, 0.9], 0.9, 0.8))
    peer_runs.show(peer_runs.Side("blazen", "w2", 1000, [0.7, 0.85, 0.9], 0.9, 0.8))
    missed, held = capsys.readouterr().out.splitlines()
    assert "MISSED" in missed and "MISSED" not in held and "0.70 to   0.90" in held
