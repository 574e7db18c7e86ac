"""Who may do what: every route with every way around it, roles, namespaces, tokens, cookies, hosts and origins."""

import asyncio
from collections.abc import Mapping

import httpx2
import pytest

from refold.core.outcomes import SECOND
from refold.server.access import PERMISSIONS, ROLES, hash_of, read_token, written_token
from refold.server.credentials import FAILURES, SESSION_FOR, TICKET_FOR
from refold.server.problems import HttpProblem
from refold.server.routes import Route
from refold.server.table import OPEN, ROUTES
from tests.server.conftest import NS, Server

GUARDED = [route for route in ROUTES if route.need not in ("open", "ticket")]
FILLED = {
    "ns": "default",
    "worker": "w",
    "n": "1",
    "i": "0",
    "run": "r1",
    "step": "s",
    "visit": "1",
    "name": "n",
    "id": "i",
    "hash": "h",
    "fingerprint": "f",
    "file": "none.js",
    "backfill": "b",
}


def address(route: Route, **other: str) -> str:
    return route.path.format(**{**FILLED, **other})


def test_the_open_routes_are_exactly_these() -> None:
    paths = ["/livez", "/readyz", "/healthz", "/version", "/openapi.json", "/", "/assets/{file}"]
    assert [route.path for route in OPEN] == paths
    assert [route.path for route in ROUTES if route.need == "ticket"] == ["/api/v1/sign-in"]


def test_every_permission_is_needed_by_some_route() -> None:
    assert {route.need for route in ROUTES} & {*PERMISSIONS} == {*PERMISSIONS}


def test_remote_workers_may_do_nothing_but_work_and_nobody_else_may() -> None:
    desk = {route.name for route in ROUTES if "/desk/v1/" in route.path}
    assert {route.name for route in ROUTES if route.need == "work"} == desk
    assert [role for role, permissions in ROLES.items() if "work" in permissions] == ["worker"]


def test_no_role_may_do_more_than_the_table_of_roles_says() -> None:
    assert ROLES["viewer"] == {"read"}
    assert ROLES["worker"] == {"work"}
    assert ROLES["approver"] == {"read", "values", "decide"}
    assert ROLES["author"] - ROLES["operator"] == {"write"}
    assert "decide" not in ROLES["author"] | ROLES["operator"]
    assert "work" not in ROLES["admin"]


async def send(client: httpx2.AsyncClient, method: str, path: str, headers: Mapping[str, str] = {}) -> httpx2.Response:
    request = client.build_request(method, path, headers=dict(headers))
    request.url = request.url.copy_with(raw_path=path.encode())  # as it is written, not as a client would mend it
    return await client.send(request)


async def test_no_way_around_a_credential_lets_anything_through(server: Server) -> None:
    """Every route, written and sent in all the ways that have let people past other engines."""
    tried = 0
    async with server.client() as client:
        for route in GUARDED:
            path = address(route)
            ways: list[tuple[str, str, dict[str, str]]] = [
                (route.method, path, {}),
                (route.method, path.upper(), {}),
                (route.method, path + "/", {}),
                (route.method, path.replace("/", "//", 1), {}),
                (route.method, path.replace("/api", "/%61pi"), {}),
                (route.method, path.replace("/runs", "%2Fruns"), {}),
                (route.method, path + ";a=b", {}),
                (route.method, path + "/livez", {}),
                (route.method, path + "/health", {}),
                (route.method, "/livez/.." + path, {}),
                (route.method, path + "?token=x" if route.method == "GET" else path, {}),
                ("HEAD", path, {}),
                ("OPTIONS", path, {"origin": server.address, "access-control-request-method": route.method}),
                ("POST", path, {"x-http-method-override": route.method}),
                (route.method, path, {"authorization": "Basic YTpi"}),
                (route.method, path, {"authorization": "Bearer x"}),
                (route.method, path, {"cookie": f"{server.service.credentials.cookie}=x"}),
                (route.method, path, {"x-refold": "1"}),
                (route.method, path, {"x-forwarded-for": "127.0.0.1", "x-original-url": "/livez"}),
                (route.method, path, {"upgrade": "websocket", "connection": "upgrade"}),
            ]
            for method, written, headers in ways:
                if (method, written) == ("POST", "/api/v1/sign-in"):
                    continue  # the route that takes a ticket
                answer = await send(client, method, written, headers)
                assert answer.status_code == 401, (method, written, headers, answer.status_code, answer.text)
                assert answer.headers["www-authenticate"] == "Bearer"
                server.clock.now += 61  # refused credentials are not counted against this test
                tried += 1
    assert tried == len(GUARDED) * 20 - 1


async def test_hosts_and_origins_of_others_are_refused_on_every_route(server: Server) -> None:
    token = await server.token()
    port = int(server.address.rpartition(":")[2])
    async with server.client(token) as client:
        for route in ROUTES:
            path = address(route)
            for host in ("evil.test", f"evil.test:{port}", "127.0.0.1:1", f"127.0.0.1.evil.test:{port}", ""):
                answer = await send(client, route.method, path, {"host": host})
                assert answer.status_code in (400, 421), (route.name, host)
            foreign: tuple[dict[str, str], ...] = (
                {"origin": f"http://127.0.0.1:{port + 1}"},
                {"origin": "http://evil.test"},
                {"origin": "null"},
                {"sec-fetch-site": "same-site"},
                {"sec-fetch-site": "cross-site"},
            )
            for headers in foreign:
                answer = await send(client, route.method, path, headers)
                assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin"), (route.name, headers)
        assert (await client.get(f"{NS}/runs", headers={"origin": server.address})).status_code == 200


async def test_a_role_reaches_exactly_the_routes_of_its_permissions(server: Server) -> None:
    for role, permissions in ROLES.items():
        async with server.client(await server.token(role)) as client:
            for route in GUARDED:
                if route.is_stream:
                    continue  # an open stream does not end by itself; it has its own tests
                answer = await send(client, route.method, address(route), {"content-type": "application/json"})
                may = route.need == "any" or route.need in permissions
                assert (answer.status_code == 403) != may, (role, route.name, answer.status_code, answer.text)
                foreign = await send(client, route.method, address(route, ns="other"))
                assert foreign.status_code == (404 if "{ns}" in route.path else answer.status_code), route.name
                if not may:
                    assert f"`{route.need}`" in answer.json()["detail"]


async def test_a_token_for_one_workflow_sees_no_runs_of_others(server: Server, client: httpx2.AsyncClient) -> None:
    greeted, listening = await server.start(client, "greet"), await server.start(client, "listen")
    async with server.client(await server.token("operator", workflows=("greet",))) as limited:
        assert [row["id"] for row in (await limited.get(f"{NS}/runs")).json()["items"]] == [greeted]
        assert (await limited.get(f"{NS}/runs/{greeted}")).status_code == 200
        for path in ("", "/facts", "/why", "/children", "/input", "/result", "/context", "/lines", "/stream"):
            assert (await limited.get(f"{NS}/runs/{listening}{path}")).status_code == 404, path
        assert (await limited.post(f"{NS}/runs/{listening}/cancel", json={})).status_code == 404
        assert (await limited.post(f"{NS}/runs", json={"workflow": "listen"})).status_code == 404
        assert [each["name"] for each in (await limited.get(f"{NS}/workflows")).json()["items"]] == ["greet"]


async def test_a_viewer_sees_no_value_anywhere(server: Server, client: httpx2.AsyncClient) -> None:
    secret = "the-value-that-nobody-may-see"
    run = await server.start(client, "greet", input={"name": secret})
    await server.until(client, run, "completed")
    failed = await server.start(client, "broken")
    await server.until(client, failed, "failed")
    asking = await server.start(client, "ask")
    await server.until(client, asking, "waiting")
    async with server.client(await server.token("viewer")) as viewer:
        for path in (
            "/runs",
            f"/runs/{run}",
            f"/runs/{run}/facts",
            f"/runs/{run}/why",
            "/overview",
            "/gates",
            "/workflows",
        ):
            answer = await viewer.get(f"{NS}{path}")
            assert (answer.status_code, secret in answer.text) == (200, False), path
        for path in ("input", "result", "context", "lines"):
            assert (await viewer.get(f"{NS}/runs/{run}/{path}")).status_code == 403
        shown = (await viewer.get(f"{NS}/runs/{failed}")).json()
        assert (shown["error"]["step"], "division" in str(shown)) == ("bad", False)
        assert "division" not in (await viewer.get(f"{NS}/dead-letters")).text
        for path in ("", "/why", "/facts", "/frames", "/at/2"):
            shown = await viewer.get(f"{NS}/runs/{asking}{path}")
            assert (shown.status_code, "go on?" in shown.text) == (200, False), path
        assert "go on?" not in (await viewer.get(f"{NS}/gates")).text


async def test_a_token_is_shown_once_listed_without_its_secret_and_ends_when_it_is_revoked(
    server: Server, client: httpx2.AsyncClient
) -> None:
    made = (await client.post(f"{NS}/tokens", json={"name": "ci", "role": "operator", "expires": "30d"})).json()
    listed = (await client.get(f"{NS}/tokens")).text
    assert (made["token"] in listed, made["token"].split("_", 2)[2] in listed, made["id"] in listed) == (
        False,
        False,
        True,
    )
    async with server.client(made["token"]) as operator:
        assert (await operator.get("/api/v1/me")).json()["name"] == "ci"
        assert (await client.delete(f"{NS}/tokens/{made['id']}")).status_code == 204
        assert (await operator.get("/api/v1/me")).status_code == 401
    for body in (
        {"name": "x", "role": "king"},
        {"name": "", "role": "viewer"},
        {"name": "x", "role": "viewer", "plus": ["write"]},
    ):
        assert (await client.post(f"{NS}/tokens", json=body)).status_code == 422, body


async def test_a_token_that_has_expired_is_refused(server: Server) -> None:
    async with server.client(await server.token(expires_at=server.service.now() - 1)) as client:
        assert (await client.get("/api/v1/me")).status_code == 401


async def test_a_token_counts_only_with_its_own_secret(server: Server) -> None:
    good, other = read_token(await server.token()), read_token(await server.token("viewer"))
    assert good is not None and other is not None
    async with server.client(written_token(good[0], other[1])) as client:
        assert (await client.get("/api/v1/me")).status_code == 401
    async with server.client(written_token(*good)) as client:
        assert (await client.get("/api/v1/me")).json()["role"] == "admin"


async def test_sessions_and_sign_in_links_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.token("operator", "dee")
    credentials = server.service.credentials
    [token] = await credentials.tokens()
    secret, _ = await credentials.sign_in(await credentials.new_ticket(token.id), "here")
    session, late = hash_of(secret), await credentials.new_ticket(token.id)
    assert await credentials.of_session(session) is not None
    at = server.service.now()
    monkeypatch.setattr(credentials, "_now", lambda: at + TICKET_FOR + SECOND)
    with pytest.raises(HttpProblem, match="was used or has expired"):
        await credentials.sign_in(late, "here")
    monkeypatch.setattr(credentials, "_now", lambda: at + SESSION_FOR + SECOND)
    assert await credentials.of_session(session) is None


async def test_refused_credentials_of_an_address_are_limited_and_nobody_is_locked_out_for_long(server: Server) -> None:
    good = await server.token()
    async with server.client("rfd_aaaaaaaa_" + "x" * 43) as bad, server.client(good) as client:
        assert [(await bad.get("/api/v1/me")).status_code for _ in range(FAILURES)] == [401] * FAILURES
        limited = await bad.get("/api/v1/me")
        assert (limited.status_code, int(limited.headers["retry-after"]) > 0) == (429, True)
        server.clock.now += 61
        assert (await client.get("/api/v1/me")).status_code == 200


async def test_a_sign_in_link_is_used_once_and_gives_a_cookie_that_only_this_server_reads(server: Server) -> None:
    await server.token("operator", "dee")
    token = (await server.service.credentials.tokens())[0]
    ticket = await server.service.credentials.new_ticket(token.id)
    own = {"origin": server.address, "content-type": "application/json"}
    async with server.client(**own) as client:
        answer = await client.post("/api/v1/sign-in", json={"ticket": ticket})
        assert (answer.status_code, answer.json()["name"]) == (200, "dee")
        cookie = answer.headers["set-cookie"]
        port = server.address.rpartition(":")[2]
        assert cookie.startswith(f"refold-{port}=")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await client.post("/api/v1/sign-in", json={"ticket": ticket})).status_code == 401
        client.cookies.clear()
        mine = {"cookie": cookie.partition(";")[0]}
        assert (await client.get("/api/v1/me", headers=mine)).status_code == 401, "without X-Refold"
        mine["x-refold"] = "1"
        assert (await client.get("/api/v1/me", headers=mine)).json()["name"] == "dee"
        started = await client.post(f"{NS}/runs", json={"workflow": "greet"}, headers=mine)
        assert started.status_code == 201
        for missing in ("origin", "content-type"):
            sent = {**own, **mine}
            del sent[missing]
            request = httpx2.Request(
                "POST", f"{server.address}{NS}/runs", content=b'{"workflow": "greet"}', headers=sent
            )
            async with httpx2.AsyncClient(trust_env=False) as bare:
                assert (await bare.send(request)).status_code in (403, 415), missing
        assert (await client.delete("/api/v1/sign-in", headers=mine)).status_code == 204
        assert (await client.get("/api/v1/me", headers=mine)).status_code == 401


async def test_a_ticket_signs_in_one_browser_however_many_try(server: Server) -> None:
    await server.token("operator", "dee")
    token = (await server.service.credentials.tokens())[0]
    ticket = await server.service.credentials.new_ticket(token.id)
    async with server.client() as client:
        tries = await asyncio.gather(*(client.post("/api/v1/sign-in", json={"ticket": ticket}) for _ in range(8)))
    assert sorted(each.status_code for each in tries) == [200] + [401] * 7


async def test_no_answer_lets_another_site_in_and_every_answer_has_the_headers(server: Server) -> None:
    async with server.client(await server.token()) as client:
        for path in ("/", "/openapi.json", "/none", f"{NS}/runs", "/assets/none.js"):
            answer = await client.get(path)
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert "server" not in answer.headers


@pytest.mark.parametrize("header", ["host", "authorization", "origin"])
async def test_a_header_that_decides_something_may_stand_only_once(server: Server, header: str) -> None:
    token = await server.token()
    own = server.address.removeprefix("http://")
    pairs = {"host": own, "authorization": f"Bearer {token}", "origin": server.address}
    lines = [f"{name}: {value}" for name, value in [*pairs.items(), (header, pairs[header])]]
    reader, writer = await asyncio.open_connection(*own.split(":"))
    writer.write("\r\n".join(["GET /api/v1/me HTTP/1.1", *lines, "connection: close", "", ""]).encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    assert status == b"400"


async def test_the_log_of_requests_has_no_token_and_no_query(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="refold.server")
    token = await server.token()
    async with server.client(token) as client:
        await client.get(f"{NS}/runs", params={"name": "a-name-in-the-query"})
        await client.get(f"{NS}/runs/some-run-id")
    shown = str([(record.getMessage(), getattr(record, "fields", {})) for record in caplog.records])
    assert f"'route': '{NS.replace('default', '{ns}')}/runs'" in shown
    assert token.split("_", 2)[2] not in shown
    assert "a-name-in-the-query" not in shown
