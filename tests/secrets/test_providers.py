"""Where secrets come from: each place, the order in which they are asked, and what is said when none has it."""

import subprocess
import sys
from pathlib import Path

import keyring
import pytest
from keyring.errors import KeyringError

from refold.errors import InvalidValue, NotFound, Unusable
from refold.secrets import keyring as ring
from refold.secrets.access import SecretAccess, SecretPlaces
from refold.secrets.hidden import Hidden, leaves
from refold.secrets.names import LARGEST, parse_secret, variable
from refold.secrets.providers import Folder, SecretNames
from tests.secrets.rooms import CANARY, Hand, room

TRAVERSALS = ("../keys", "/etc/passwd", "..", ".", "a/b", "a\\b", "", "a\0b", "-x", ".hidden", "a" * 65, "a b", "é")


def mounted(folder: Path, name: str, text: str, mode: int = 0o600) -> Path:
    file = folder / "mounted" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


async def test_a_secret_of_the_environment_is_found_by_its_name(tmp_path: Path) -> None:
    opened = room(tmp_path, REFOLD_SECRET_PG_MAIN=CANARY)
    assert await opened.read("pg-main") == await opened.read("pg.main") == await opened.read("PG_MAIN") == CANARY


async def test_a_secret_of_a_folder_is_the_text_of_its_file_without_its_last_line_end(tmp_path: Path) -> None:
    mounted(tmp_path, "token", f"{CANARY}\n\n")
    assert await room(tmp_path).read("token") == f"{CANARY}\n"


async def test_the_environment_is_asked_first_then_the_folder_then_the_encrypted_file(tmp_path: Path) -> None:
    opened = room(tmp_path, REFOLD_SECRET_A="from environment")
    mounted(tmp_path, "a", "from folder")
    mounted(tmp_path, "b", "from folder")
    for name in "abc":
        opened.file.set(name, "from file", 1)
    assert [await opened.read(name) for name in "abc"] == ["from environment", "from folder", "from file"]


async def test_who_has_no_such_secret_says_who_was_asked_and_what_to_do(tmp_path: Path) -> None:
    opened = room(tmp_path)
    opened.file.set("other", "whatever", 1)
    with pytest.raises(NotFound) as caught:
        await opened.read("shop-token")
    for part in ("REFOLD_SECRET_SHOP_TOKEN", str(tmp_path / "mounted"), "db-secrets", "refold secret set shop-token"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", TRAVERSALS)
async def test_what_is_no_name_is_refused_and_never_a_path(tmp_path: Path, name: str) -> None:
    mounted(tmp_path, "real", "text")
    (tmp_path / "keys").write_text("not for you")
    with pytest.raises(InvalidValue):
        await room(tmp_path).read(name)
    assert Folder(tmp_path / "mounted").text(name) is None


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o602, 0o666])
async def test_a_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    file = mounted(tmp_path, "token", "s3cret-text", mode)
    with pytest.raises(Unusable, match=f"mode {mode:04o}.*chmod 600") as caught:
        await room(tmp_path).read("token")
    assert str(file) in str(caught.value) and "s3cret-text" not in str(caught.value)


async def test_a_file_for_its_owner_and_a_group_that_reads_is_fine(tmp_path: Path) -> None:
    mounted(tmp_path, "token", "s3cret-text", 0o440)
    assert await room(tmp_path).read("token") == "s3cret-text"


async def test_a_link_that_leads_out_of_the_folder_is_refused_and_one_within_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("elsewhere")
    outside.chmod(0o600)
    mounted(tmp_path, "..data", "within it").rename(tmp_path / "mounted" / "data")
    (tmp_path / "mounted" / "in").symlink_to("data")
    (tmp_path / "mounted" / "out").symlink_to(outside)
    assert await room(tmp_path).read("in") == "within it"
    with pytest.raises(Unusable, match="leads out"):
        await room(tmp_path).read("out")


async def test_what_is_no_text_or_too_long_is_refused_by_name(tmp_path: Path) -> None:
    mounted(tmp_path, "bytes", "").write_bytes(b"\xff\xfe")
    with pytest.raises(Unusable, match="not UTF-8"):
        await room(tmp_path).read("bytes")
    with pytest.raises(Unusable, match=f"more than {LARGEST}"):
        await room(tmp_path, REFOLD_SECRET_LONG="x" * (LARGEST + 1)).read("long")


def test_a_json_object_is_a_map_of_fields_and_all_else_is_text() -> None:
    assert parse_secret('{"user": "ann", "n": 1}') == {"user": "ann", "n": 1}
    assert [parse_secret(text) for text in ("[1]", "17", '"x"', "{no", "true")] == ["[1]", "17", '"x"', "{no", "true"]


def test_names_are_told_and_found_however_the_environment_spells_them(tmp_path: Path) -> None:
    opened = room(tmp_path, REFOLD_SECRET_PG_MAIN="x", OTHER="y")
    mounted(tmp_path, "token", "z")
    opened.file.set("kept", "w", 1)
    names = opened.names()
    assert names is not None and list(names) == ["kept", "pg_main", "token"]
    assert "pg-main" in names and "nothing" not in names and len(SecretNames(names)) == 3
    assert variable("pg-main.x") == "REFOLD_SECRET_PG_MAIN_X"


async def test_the_keyring_is_asked_when_it_may_be_and_cannot_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {("refold", "token"): CANARY}
    monkeypatch.setattr(keyring, "get_password", lambda system, name: kept.get((system, name)))
    opened = SecretAccess({}, SecretPlaces(folder="", keyring=True), Hand())
    assert await opened.read("token") == CANARY
    assert opened.names() is None
    with pytest.raises(NotFound, match="keyring"):
        await opened.read("other")


async def test_a_keyring_that_fails_is_an_error_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(system: str, name: str) -> None:
        raise KeyringError("locked")

    monkeypatch.setattr(keyring, "get_password", fail)
    with pytest.raises(Unusable, match="KeyringError"):
        await ring.Keyring().find("token")


@pytest.mark.parametrize(
    ("missing", "module", "extra"),
    [
        ("cryptography", "encryption", "secrets"),
        ("platformdirs", "encryption", "secrets"),
        ("keyring", "keyring", "keyring"),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(missing: str, module: str, extra: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import refold.secrets.{module}"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert f"pip install 'refold[{extra}]'" in told and "Unusable" in told


def test_no_object_that_holds_a_secret_shows_it(tmp_path: Path) -> None:
    opened = room(tmp_path, REFOLD_SECRET_A=CANARY, REFOLD_KEY=CANARY)
    hidden = Hidden(CANARY)
    shown = [
        repr(each) for each in (hidden, opened, opened.providers(), opened.redactor, opened.entry_cache, opened.keys)
    ]
    shown += [str(hidden), f"{hidden}", f"{hidden:>10}", repr([hidden]), repr({"a": hidden})]
    assert [text for text in shown if CANARY in text] == []
    with pytest.raises(TypeError):
        hidden.__reduce__()


def test_leaves_are_the_texts_and_numbers_of_a_value_beside_public_fields() -> None:
    value = {"a": "x", "b": [1, 2.5, True, None, {"c": "y"}], "HOST": "z"}
    assert leaves(value) == ["x", "1", "2.5", "y", "z"]
    assert leaves(value, frozenset({"host"})) == ["x", "1", "2.5", "y"]


async def test_whatever_is_read_is_known_to_the_redactor_and_public_fields_are_not(tmp_path: Path) -> None:
    opened = room(tmp_path, REFOLD_SECRET_DB='{"host": "db.example.org", "password": "correct-horse"}')
    assert await opened.read("db") == {"host": "db.example.org", "password": "correct-horse"}
    assert opened.redactor.redact("correct-horse at db.example.org") == "*** at db.example.org"
    assert opened.redaction.text("correct-horse") == "***"
