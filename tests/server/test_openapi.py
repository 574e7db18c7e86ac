"""The document and the page of the API say what the table of routes says."""

from pathlib import Path

import httpx2
from msgspec import json

from docs.build.page_types import types
from docs.build.server_page import openapi, page
from refold.server.routes import Route, RouteTable
from refold.server.table import ROUTES
from tests.server.conftest import Server

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def test_the_golden_document_is_that_of_the_table() -> None:
    assert (REFERENCE / "openapi.json").read_text() == openapi(), "python -m docs.build.server_page openapi"


def test_the_reference_page_is_printed_from_the_table() -> None:
    assert (REFERENCE / "server.md").read_text() == page(), "python -m docs.build.server_page"


def test_the_types_of_the_page_are_those_of_the_table() -> None:
    written = ROOT / "web" / "src" / "api" / "generated.ts"
    assert written.read_text() == types(), f"python -m docs.build.page_types >{written.relative_to(ROOT)}"


async def test_the_served_document_has_every_route_with_its_permission(server: Server) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        found = (await client.get(f"{server.address}/openapi.json")).json()
    listed = {
        (method.upper(), path): operation["x-refold-permission"]
        for path, operations in found["paths"].items()
        for method, operation in operations.items()
    }
    assert listed == {(route.method, route.path): route.need for route in ROUTES}
    references = {each.partition('"')[0] for each in json.encode(found).decode().split('"$ref":"')[1:]}
    assert {each.rpartition("/")[2] for each in references} <= found["components"]["schemas"].keys()
    assert len({each["operationId"] for path in found["paths"].values() for each in path.values()}) == len(ROUTES)


def test_an_address_finds_only_the_route_that_is_written_exactly_so() -> None:
    table = RouteTable(ROUTES)
    assert table.find("GET", b"/api/v1/ns/a/runs/b").path == {"ns": "a", "run": "b"}
    assert table.find("GET", b"/api/v1/ns/a/runs/b%20c").path["run"] == "b c"
    for odd in (
        b"/api/v1/ns/a/runs/",
        b"/api/v1//ns/a/runs",
        b"/API/v1/ns/a/runs",
        b"/api/v1/ns/a/runs/..",
        b"/api/v1/ns/a/runs/%2e%2e",
        b"/api/v1/ns/a/runs/b%2Fc",
        b"/api/v1/ns/a/runs/%00",
        b"/api/v1/ns//runs",
        b"/api/v1/ns/a/runs/%ff",
        b"/api/v1/ns/a/runs/b%5Cc",
        b"api/v1/ns/a/runs",
    ):
        found = table.find("GET", odd)
        assert (found.route, found.allowed) == (None, ()), odd
    assert table.find("DELETE", b"/api/v1/ns/a/runs").allowed == ("GET", "POST")


def test_a_route_that_is_in_the_table_twice_is_a_mistake() -> None:
    route: Route = ROUTES[0]
    try:
        RouteTable([route, route])
    except ValueError as error:
        assert "twice" in str(error)
    else:
        raise AssertionError("the second line would never be reached")
