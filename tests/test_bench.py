"""The benchmarks run, and say what they say of a file that is written as it is in earnest."""

from bench.durable import measure_durable
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
