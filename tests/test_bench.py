"""The benchmarks run, and say what they say of a file that is written as it is in earnest."""

from bench.durable import measure_durable


def test_a_workload_is_told_with_what_it_wrote_and_how_safely() -> None:
    bench = measure_durable("many_runs", quick=True)
    (figure,) = bench.figures
    assert figure.written is not None
    assert figure.written.facts == 500 * 8 and figure.written.rows > figure.written.facts
    assert figure.written.syncs >= figure.written.commits > 0
    assert figure.written.synchronous == 2 and bench.synchronous == {2}
