"""The keychain of a playbook: each kind, each scope, fetched when it is used, once, and never told."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from refold.core.outcomes import Fault
from refold.core.pipeline import TaskPipeline
from refold.errors import InvalidValue, ToolFailed
from refold.playbooks.playbook import read
from refold.secrets.entry_cache import EntryCache
from refold.secrets.keychain import EntryOwner, Keychain
from refold.secrets.keychain_kinds import KINDS, Sources
from refold.secrets.providers import Folder
from refold.secrets.redactor import Redactor
from refold.tools.catalog import CATALOG
from refold.tools.pipeline.secrets import as_auth
from tests.secrets.rooms import CANARY, Hand, Stored, room

PLACE = EntryOwner("plan-1", "run-1", "root-1")


def render(value: Any, names: Mapping[str, Any]) -> Any:
    """Templates as simple as can be: `{{ a.b.c }}`."""
    if isinstance(value, dict):
        return {name: render(each, names) for name, each in value.items()}
    found = re.fullmatch(r"\{\{ ([\w.]+) \}\}", value) if isinstance(value, str) else None
    if found is None:
        return value
    at: Any = names
    for part in found.group(1).split("."):
        at = at[part]
    return at


class House:
    """What a keychain is made of, for one process."""

    def __init__(self, folder: Path | None = None, variables: Mapping[str, str] | None = None, **secrets: Any) -> None:
        self.clock, self.stored, self.redactor = Hand(), Stored(**secrets), Redactor()
        self.kept = EntryCache(self.clock)
        self.folder, self.variables = Folder(folder or "/nowhere"), variables or {}
        self.asked: list[Mapping[str, Any]] = []
        self.answers: list[Any] = []

    async def request(self, request: Mapping[str, Any]) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def chain(self, *entries: Mapping[str, Any], place: EntryOwner = PLACE, **names: Any) -> Keychain:
        sources = Sources(self.stored, self.redactor.remember, self.variables, self.folder, self.request)
        return Keychain(entries, place, sources, self.kept, render, names)


async def fault_of(chain: Keychain, alias: str) -> Fault:
    with pytest.raises(ToolFailed) as caught:
        await chain.entry(alias)
    fault = caught.value.fault
    assert isinstance(fault, Fault)
    return fault


async def test_a_static_entry_is_its_map_and_what_its_templates_bring_is_secret() -> None:
    house = House()
    entry = {"name": "s", "kind": "static", "map": {"url": "https://written.example", "key": "{{ workload.key }}"}}
    chain = house.chain(entry, workload={"key": "brought-along"})
    assert await chain.entry("s") == {"url": "https://written.example", "key": "brought-along"}
    assert house.redactor.redact("https://written.example brought-along") == "https://written.example ***"


async def test_a_bearer_entry_is_its_token_which_may_be_a_secret_by_name() -> None:
    chain = House(shop=CANARY).chain({"name": "b", "kind": "bearer", "token": {"secret": "shop"}})
    assert await chain.entry("b") == {"token": CANARY, "access_token": CANARY, "token_type": "Bearer"}


@pytest.mark.parametrize(("kind", "key"), [("credential", "credential"), ("credential_ref", "ref")])
async def test_a_credential_is_a_stored_secret(kind: str, key: str) -> None:
    house = House(pg={"user": "ann", "password": CANARY})
    chain = house.chain({"name": "c", "kind": kind, key: "{{ workload.which }}"}, workload={"which": "pg"})
    assert await chain.field("c", "password") == CANARY
    chosen = house.chain({"name": "d", "kind": kind, key: "pg", "map": {"pw": "password"}})
    assert await chosen.entry("d") == {"pw": CANARY}


async def test_a_credential_in_noetls_own_form_gives_its_data() -> None:
    stored = {"name": "pg", "type": "postgres", "data": {"db_user": "ann", "db_password": CANARY}}
    chain = House(pg=stored).chain({"name": "c", "kind": "credential", "credential": "pg"})
    assert await chain.entry("c") == {"db_user": "ann", "db_password": CANARY}


async def test_a_credential_that_is_text_gives_it_as_value_token_and_password() -> None:
    chain = House(t=CANARY).chain({"name": "c", "kind": "credential", "ref": "t"})
    assert set((await chain.entry("c")).values()) == {CANARY}
    assert await chain.field("c", "value") == CANARY


async def test_env_and_file_entries_read_what_their_map_names(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text(CANARY + "\n")
    (tmp_path / "pw").chmod(0o600)
    house = House(tmp_path, {"PGPASSWORD": CANARY})
    for kind in ({"kind": "env"}, {"kind": "secret_manager", "provider": "env"}):
        chain = house.chain({"name": "e", **kind, "map": {"password": "PGPASSWORD"}})
        assert await chain.entry("e") == {"password": CANARY}
    for kind in ({"kind": "file"}, {"kind": "secrets", "provider": "file"}):
        chain = house.chain({"name": "f", **kind, "map": {"password": "pw"}})
        assert await chain.entry("f") == {"password": CANARY}
    elsewhere = House(None).chain({"name": "g", "kind": "file", "folder": str(tmp_path), "map": {"x": "pw"}})
    assert await elsewhere.entry("g") == {"x": CANARY}


async def test_no_input_of_a_run_chooses_which_variable_or_file_is_read(tmp_path: Path) -> None:
    house = House(tmp_path, {"OTHER": CANARY, "REFOLD_KEY": CANARY})
    chosen = {"x": "{{ workload.which }}"}
    for kind in ("env", "file"):
        fault = await fault_of(
            house.chain({"name": "e", "kind": kind, "map": chosen}, workload={"which": "OTHER"}), "e"
        )
        assert "{{ workload.which }}" in fault.message
    fault = await fault_of(house.chain({"name": "k", "kind": "env", "map": {"x": "REFOLD_KEY"}}), "k")
    assert "entries may read" in fault.message
    fault = await fault_of(house.chain({"name": "f", "kind": "file", "map": {"x": "../other"}}), "f")
    assert "no file" in fault.message


async def test_a_secret_manager_without_a_provider_reads_secrets_by_their_names() -> None:
    chain = House(one=CANARY).chain({"name": "m", "kind": "secret_manager", "map": {"x": "{{ w }}"}}, w="one")
    assert await chain.entry("m") == {"x": CANARY}


CLOUDS = [
    *({"kind": kind} for kind in ("google_id_token", "google_oauth", "google_service_account")),
    *(
        {"kind": "secret_manager", "provider": each, "map": {"a": "b"}}
        for each in ("gcp", "aws", "azure", "vault", "k8s")
    ),
]


@pytest.mark.parametrize("keys", CLOUDS, ids=str)
async def test_entries_of_a_cloud_are_not_available_and_that_is_said_when_they_are_used(keys: dict[str, Any]) -> None:
    chain = House().chain({"name": "s", "kind": "static", "map": {"a": 1}}, {"name": "c", **keys})
    assert await chain.entry("s") == {"a": 1}
    fault = await fault_of(chain, "c")
    assert "not available" in fault.message and "'c'" in fault.message and fault.retryable is False


async def test_an_unknown_kind_entry_or_field_is_an_error_that_names_those_there_are() -> None:
    chain = House().chain({"name": "s", "kind": "static", "map": {"user": CANARY}}, {"name": "x", "kind": "magic"})
    told = (await fault_of(chain, "x")).message
    assert [kind for kind in KINDS if kind not in told] == []
    assert "it has s, x" in (await fault_of(chain, "nothing")).message
    with pytest.raises(ToolFailed, match="it has user") as caught:
        await chain.field("s", "password")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "entry", [{"kind": "static"}, {"name": "a"}, {"name": "a", "kind": "static", "scope": "universal"}, {}], ids=str
)
def test_what_is_no_entry_is_refused_at_once(entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="keychain"):
        House().chain(entry)


TOKEN = {
    "name": "o",
    "kind": "oauth2",
    "endpoint": "https://login.example/token",
    "headers": {"accept": "application/json"},
    "data": {"client_id": "{{ keychain.client.id }}", "client_secret": "{{ keychain.client.secret }}"},
}
CLIENT = {"name": "client", "kind": "static", "map": {"id": "me", "secret": CANARY}}


async def test_an_oauth2_entry_asks_for_a_token_with_what_earlier_entries_hold() -> None:
    house = House()
    house.answers = [{"access_token": "first-token-1", "expires_in": 100, "token_type": "Bearer"}]
    chain = house.chain(CLIENT, {"name": "unused", "kind": "google_oauth"}, TOKEN)
    assert await chain.field("o", "access_token") == await chain.field("o", "token") == "first-token-1"
    [asked] = house.asked
    assert (asked["method"], asked["url"]) == ("POST", "https://login.example/token")
    assert asked["data"] == {"client_id": "me", "client_secret": CANARY}
    assert house.redactor.redact("first-token-1") == "***"


async def test_a_token_is_used_until_it_ends_and_renewed_before_that_if_asked() -> None:
    for renew, at_95 in ((False, "token-number-1"), (True, "token-number-2")):
        house = House()
        house.answers = [{"access_token": f"token-number-{n}", "expires_in": 100} for n in (1, 2, 3)]
        chain = house.chain(CLIENT, {**TOKEN, "auto_renew": renew})
        used = []
        for seconds in (0, 85, 10, 10):
            house.clock.go(seconds)
            used.append(await chain.field("o", "token"))
        assert used == ["token-number-1", "token-number-1", at_95, "token-number-2"]


async def test_a_token_that_cannot_be_renewed_is_used_while_it_is_good() -> None:
    house = House()
    down = ToolFailed(Fault("connection", "did not come about", retryable=True))
    house.answers = [{"access_token": "token-number-1", "expires_in": "100"}, down, down]
    chain = house.chain(CLIENT, {**TOKEN, "auto_renew": True})
    await chain.entry("o")
    house.clock.go(95)
    assert await chain.field("o", "token") == "token-number-1"
    house.clock.go(10)
    assert (await fault_of(chain, "o")).retryable is True


async def test_an_answer_without_a_token_is_an_error_that_tells_no_value() -> None:
    house = House()
    house.answers = [{"error": "invalid_client", "hint": CANARY}, "nothing"]
    fault = await fault_of(house.chain(CLIENT, TOKEN), "o")
    assert "login.example" in fault.message and "error, hint" in fault.message and CANARY not in fault.message
    assert "no map" in (await fault_of(house.chain(CLIENT, TOKEN), "o")).message


async def test_entries_are_fetched_when_they_are_used_and_once_for_all_who_use_them_at_once() -> None:
    house = House()
    house.answers = [{"access_token": "token-number-1", "expires_in": 100}]
    chain = house.chain(CLIENT, TOKEN)
    assert house.asked == []
    found = await asyncio.gather(*(chain.field("o", "token") for _ in range(20)))
    assert set(found) == {"token-number-1"} and len(house.asked) == 1


async def test_one_who_gives_up_does_not_end_the_fetching_for_others() -> None:
    house = House()
    house.answers = [{"access_token": "token-number-1", "expires_in": 100}]
    chain = house.chain(CLIENT, TOKEN)
    first, second = asyncio.ensure_future(chain.entry("o")), asyncio.ensure_future(chain.entry("o"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second)["token"] == "token-number-1" and len(house.asked) == 1


async def test_a_fetch_that_failed_is_tried_again_by_the_next() -> None:
    house = House()
    house.answers = [ToolFailed(Fault("connection", "no")), {"access_token": "token-number-1"}]
    chain = house.chain(CLIENT, TOKEN)
    assert (await fault_of(chain, "o")).message == "no"
    assert await chain.field("o", "token") == "token-number-1"


@pytest.mark.parametrize(
    ("scope", "reads"),
    [
        ("local", ["run-1", "run-2", "run-3", "other"]),
        ("shared", ["run-1", "run-3", "other"]),
        ("global", ["run-1", "other"]),
    ],
)
async def test_an_entry_is_kept_for_its_run_its_tree_or_its_playbook(scope: str, reads: list[str]) -> None:
    house = House(pg={"password": CANARY})
    entry = {"name": "c", "kind": "credential", "ref": "pg", "scope": scope}
    places = [
        EntryOwner("p", "run-1", "root"),
        EntryOwner("p", "run-2", "root"),
        EntryOwner("p", "run-3"),
        EntryOwner("q", "other"),
    ]
    fetched = []
    for place in places * 2:
        before = len(house.stored.reads)
        assert await house.chain(entry, place=place).field("c", "password") == CANARY
        fetched += [place.run] if len(house.stored.reads) > before else []
    assert fetched == reads
    assert (
        EntryOwner("p", "r", "t").key("n", scope) == f"n:p:{ {'local': 'r', 'shared': 't', 'global': 'global'}[scope] }"
    )


async def test_what_is_kept_is_read_anew_when_its_time_is_up() -> None:
    for ttl, seconds in ((None, 300), (20, 20), ("2m", 120)):
        house = House(pg={"password": CANARY})
        chain = house.chain({"name": "c", "kind": "credential", "ref": "pg", "ttl": ttl})
        for step, reads in ((0, 1), (seconds - 1, 1), (2, 2)):
            house.clock.go(step)
            await chain.entry("c")
            assert len(house.stored.reads) == reads
    assert (
        "duration such as"
        in (
            await fault_of(House(pg="x").chain({"name": "c", "kind": "credential", "ref": "pg", "ttl": "soon"}), "c")
        ).message
    )


async def test_what_is_kept_is_bounded_and_shows_nothing() -> None:
    house = House(pg={"password": CANARY})
    house.kept = EntryCache(house.clock, most=2)
    chain = house.chain(*({"name": f"c{n}", "kind": "credential", "ref": "pg"} for n in range(3)))
    for alias in ("c0", "c1", "c2", "c2", "c0"):
        await chain.entry(alias)
    assert len(house.stored.reads) == 4
    assert CANARY not in repr((chain, house.kept, vars(chain), vars(house.kept)))


async def test_an_entry_without_what_it_needs_is_an_error_that_says_so() -> None:
    house = House(pg={"password": CANARY})
    needs: list[tuple[dict[str, Any], str]] = [
        ({"kind": "static"}, "map"),
        ({"kind": "bearer"}, "token"),
        ({"kind": "credential"}, "credential"),
        ({"kind": "credential", "ref": "nobody"}, "no secret 'nobody'"),
        ({"kind": "credential", "ref": "pg", "map": {"a": "b"}}, "it has password"),
        ({"kind": "oauth2"}, "endpoint"),
        ({"kind": "env", "map": {"a": "NOT_SET"}}, "NOT_SET"),
        ({"kind": "file", "map": {"a": "missing"}}, "missing"),
        ({"kind": "bearer", "token": {"secret": "nobody"}}, "no secret 'nobody'"),
    ]
    for keys, part in needs:
        fault = await fault_of(house.chain({"name": "x", **keys}), "x")
        assert part in fault.message and "'x'" in fault.message and fault.kind == "auth", fault


async def test_the_room_of_a_process_makes_keychains(tmp_path: Path) -> None:
    opened = room(tmp_path, REFOLD_SECRET_SHOP=CANARY, PW="correct-horse")
    entries: list[dict[str, Any]] = [
        {"name": "a", "kind": "credential", "ref": "shop"},
        {"name": "b", "kind": "env", "map": {"pw": "PW"}},
    ]
    chain = opened.keychain(entries, PLACE, render, {}, House().request)
    assert await chain.field("a", "value") == CANARY and await chain.field("b", "pw") == "correct-horse"
    assert opened.redaction.text(f"{CANARY} correct-horse") == "*** ***"
    assert list(chain.aliases()) == ["a", "b"]


async def test_a_name_that_the_keychain_does_not_have_is_that_of_a_stored_credential() -> None:
    house = House(pg_local={"type": "postgres", "data": {"db_host": "h", "db_user": "u"}})
    chain = house.chain({"name": "api", "kind": "bearer", "token": "t"})
    assert dict(await chain.entry("pg_local")) == {"db_host": "h", "db_user": "u"}
    with pytest.raises(ToolFailed, match=r"it has api. As a stored secret: there is no secret 'other'"):
        await chain.entry("other")


@pytest.mark.parametrize(
    ("entry", "keys"),
    [
        (
            {"db_host": "h", "db_port": 1, "db_user": "u", "db_password": "p", "db_name": "d"},
            {"host": "h", "port": 1, "user": "u", "password": "p", "database": "d"},
        ),
        (
            {"value": "postgresql://h/d", "token": "postgresql://h/d", "password": "postgresql://h/d"},
            {"url": "postgresql://h/d"},
        ),
        ({"host": "h", "database": "d"}, {"host": "h", "database": "d"}),
    ],
)
def test_a_credential_of_a_database_may_have_noetls_names(entry: dict[str, Any], keys: dict[str, Any]) -> None:
    assert as_auth("postgres", entry) == keys


def test_the_credential_of_one_side_of_a_transfer_is_known_by_its_place() -> None:
    text = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t}
workflow:
  - step: a
    tool:
      kind: transfer
      source: {type: postgres, auth: pg_local, query: "select 1"}
      target: {type: duckdb, database: x.duckdb, table: t}
"""
    work = read(text, "t.yaml", CATALOG).plan.steps[0].work
    assert isinstance(work, TaskPipeline) and work.tasks[0].credentials == ("source.auth",)
