"""Whatever an address of this machine or its network is called, no connection is made to it."""

import ipaddress
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from refold.settings import Settings
from refold.tools.http.tool import HttpTool
from refold.tools.http.wire import Checked, Wire, is_public
from tests.cli.program import playbook, refold
from tests.tools.calls import call, engine, fault_of, fault_of_run, one_step
from tests.tools.web import Site, says, sends_to, served

PUBLIC = "93.184.216.34"
NAMES = {
    "localhost": ["127.0.0.1"],
    "localhost.": ["127.0.0.1"],
    "ip6-localhost": ["::1"],
    "evil.test": ["10.1.2.3"],
    "metadata.google.internal": ["169.254.169.254"],
    "half.test": [PUBLIC, "192.168.1.1"],
    "mapped.test": ["::ffff:7f00:1"],
    "xn--fsq.test": ["fd00::1"],
    "public.test": [PUBLIC],
    "other.test": ["93.184.216.35"],
}
VICTIMS = ("127.0.0.1", "10.0.0.7", "169.254.169.254", "192.168.0.9", "172.31.255.1", "100.64.0.1", "0.0.0.0")


def spellings(address: str) -> Iterator[str]:
    """The ways in which programs write, and systems read, one IPv4 address."""
    a, b, c, d = (int(part) for part in address.split("."))
    number, rest = int(ipaddress.ip_address(address)), (c << 8) + d
    yield address
    yield f"{number}"
    yield f"0x{number:08x}"
    yield f"0{number:o}"
    yield f"0{a:o}.0{b:o}.0{c:o}.0{d:o}"
    yield f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"
    yield f"{a}.{b}.{rest}"
    yield f"{a}.{(b << 16) + rest}"
    yield f"0{a:o}.0x{b:x}.{rest}"
    yield f"[::ffff:{address}]"
    yield f"[0:0:0:0:0:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}]"
    yield f"[::{address}]"
    yield f"[64:ff9b::{address}]"
    yield f"[2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1]"
    yield f"[::ffff:0:{address}]"


OTHERS = [
    *(
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[0000::0001]",
        "[fe80::1]",
        "[fe80::1%25lo]",
        "[fc00::1]",
        "[fd00:ec2::254]",
    ),
    *("[fec0::1]", "[ff02::1]", "[2001:db8::1]", "[64:ff9b:1::7f00:1]", "[2001:0:7f00:1:0:0:80ff:fffe]", "[100::1]"),
    *("224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.0.192", "192.0.2.1", "198.18.0.1", "192.88.99.1"),
    *("168.63.129.16", "100.100.100.200", "127.1", "127.255.255.254", "0", "0x0", "①②⑦.⓪.⓪.①", "127。0。0。1"),
    *(name for name in NAMES if name not in ("public.test", "other.test")),
    *("LOCALHOST", "LocalHost", "evil.test:8080"),
]
ADDRESSES = [
    *(f"http://{host}/" for victim in VICTIMS for host in spellings(victim)),
    *(f"http://{host}/" for host in OTHERS),
    *(f"https://{victim}/" for victim in VICTIMS),
    "http://public.test@127.0.0.1/",
    "http://127.0.0.1#@public.test/",
    "http://127.0.0.1\\@public.test/",
    "http://127.0.0.1%2f@public.test/",
    "//127.0.0.1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp://127.0.0.1/",
    "unix:///var/run/docker.sock",
]


async def lookup(host: str, port: int) -> Sequence[str]:
    """Names of this test, and numbers in all the forms that the system knows; nobody is asked."""
    if host.lower() in NAMES:
        return NAMES[host.lower()]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Recorder(httpcore2.AsyncNetworkBackend):
    """Notes every connection, and leads the public address of the tests to a site of this machine."""

    def __init__(self, port: int = 0) -> None:
        self.made: list[str] = []
        self.port = port
        self.real = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.made.append(host)
        if host.startswith("93.184.216.") and self.port:
            return await self.real.connect_tcp("127.0.0.1", self.port, timeout)
        raise httpcore2.ConnectError("nothing is there")


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def recorder(site: Site) -> Iterator[Recorder]:
    with served(site) as address:
        yield Recorder(int(address.rpartition(":")[2]))


@pytest.fixture
async def http(recorder: Recorder) -> AsyncIterator[HttpTool]:
    tool = HttpTool(wire=Wire(Checked(False, lookup, recorder)))
    yield tool
    await tool.close()


def test_there_are_at_least_120_spellings() -> None:
    assert len(set(ADDRESSES)) >= 120


async def test_no_spelling_of_a_private_address_leads_to_a_connection(http: HttpTool, recorder: Recorder) -> None:
    kinds = {url: (await fault_of(http, call(None, {"url": url}))).kind for url in ADDRESSES}
    assert recorder.made == []
    blocked = [url for url, kind in kinds.items() if kind == "blocked_address"]
    assert len(blocked) >= 100, "and not because the address could not be read"
    assert set(kinds.values()) <= {"blocked_address", "invalid_url", "connection"}
    for host in ("127.0.0.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]", "localhost"):
        assert kinds[f"http://{host}/"] == "blocked_address"


async def test_no_redirect_leads_there_either(http: HttpTool, site: Site, recorder: Recorder) -> None:
    for number, url in enumerate(ADDRESSES):
        if url.startswith("//"):
            continue  # of the same scheme, and thus the first of them again
        site[f"/{number}"] = sends_to(f"/again/{number}")
        site[f"/again/{number}"] = sends_to(url, 307)
        fault = await fault_of(http, call(None, {"url": f"http://public.test/{number}"}))
        assert fault.kind in ("blocked_address", "invalid_url", "connection"), url
    assert set(recorder.made) == {PUBLIC}


async def test_no_next_page_leads_there_either(http: HttpTool, site: Site, recorder: Recorder) -> None:
    site["/list"] = says({"rows": [1], "next": "http://169.254.169.254/latest"})
    pages = {"next": "data.next", "items": "data.rows"}
    assert (
        await fault_of(http, call(None, {"url": "http://public.test/list", "pages": pages}))
    ).kind == "blocked_address"
    assert recorder.made == [PUBLIC]


async def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_checked(site: Site) -> None:
    answers = [[PUBLIC], ["127.0.0.1"]]
    asked: list[str] = []

    async def flips(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    with served(site) as address:
        recorder = Recorder(int(address.rpartition(":")[2]))
        http = HttpTool(wire=Wire(Checked(False, flips, recorder)))
        site["/x"] = says("fine")
        for _ in range(3):
            assert (await http(call(None, {"url": "http://flip.test/x"})))["data"] == "fine"
        assert (asked, recorder.made) == (["flip.test"], [PUBLIC])
        assert site.asked[0].headers["host"] == "flip.test", "the server is called by its name"
        await http.close()


async def test_all_addresses_of_a_name_must_be_public(http: HttpTool, recorder: Recorder) -> None:
    assert (await fault_of(http, call(None, {"url": "http://half.test/"}))).kind == "blocked_address"
    assert recorder.made == []


async def test_the_next_address_is_tried_if_one_does_not_answer(site: Site) -> None:
    async def two(host: str, port: int) -> Sequence[str]:
        return ["8.8.8.8", PUBLIC]

    with served(site) as address:
        recorder = Recorder(int(address.rpartition(":")[2]))
        http = HttpTool(wire=Wire(Checked(False, two, recorder)))
        site["/x"] = says("fine")
        assert (await http(call(None, {"url": "http://two.test/x"})))["data"] == "fine"
        assert recorder.made == ["8.8.8.8", PUBLIC]
        await http.close()


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "1.1.1.1"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("text", ["", "x", "127.0.0.1.5", "1e5", "8.8.8.8/32"])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)


async def test_an_engine_reaches_private_addresses_only_if_it_is_told_that_it_may(site: Site) -> None:
    site["/x"] = says("private")
    with served(site) as address:
        plan = one_step("http", None, {"url": f"{address}/x"})
        async with engine(Settings()) as opened:
            fault = await fault_of_run(opened, plan)
            assert (fault.kind, fault.retryable, site.connections) == ("blocked_address", False, 0)
        async with engine(Settings(private_addresses=True)) as opened:
            assert (await opened.run(plan))["data"] == "private"


def test_a_run_on_ones_own_machine_reaches_it_unless_that_is_forbidden(site: Site, tmp_path: Path) -> None:
    site["/x"] = says("private")
    with served(site) as address:
        file = playbook(tmp_path, f"step: a\ntool: {{kind: http, url: '{address}/x'}}")
        done = refold(tmp_path, "run", file, "-q", "-o", "json")
        assert (done.code, done.data["result"]["data"]) == (0, "private"), done.err
        refused = refold(tmp_path, "run", file, "-q", REFOLD_PRIVATE_ADDRESSES="false")
        assert (refused.code, len(site.asked)) == (1, 1)


def test_the_setting_is_read_from_the_environment() -> None:
    assert Settings.from_environment({}).private_addresses is False
    assert Settings.from_environment({"REFOLD_PRIVATE_ADDRESSES": "true"}).private_addresses is True
