"""The tool `http` keeps up with the client that it is made of."""

from bench.http_cost import WANTED, measure


async def test_a_request_through_the_tool_costs_little_more_than_one_of_the_bare_client() -> None:
    cost = await measure(requests=400)
    assert cost.ratio >= WANTED * 0.75, "a busy machine may take a quarter of it"
