"""The encrypted file and its keys: nothing readable without them, every change noticed, rotation loses nothing."""

import json
import os
import stat
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from refold.errors import Corrupt, NotFound, RefoldError, Unusable
from refold.secrets import private_files as files
from refold.secrets.encrypted_file import EncryptedFile
from refold.secrets.encryption import EncryptionKeys, default_key_path
from tests.secrets.rooms import CANARY


def file(folder: Path, given: str = "") -> EncryptedFile:
    return EncryptedFile(folder / "db-secrets", EncryptionKeys(folder / "own" / "keys", given))


def new_key() -> str:
    return b64encode(os.urandom(32)).decode()


def test_what_was_set_comes_back_and_stands_nowhere_readable(tmp_path: Path) -> None:
    kept = file(tmp_path)
    assert kept.set("token", CANARY, 1) and not kept.set("token", CANARY + "2", 2)
    assert file(tmp_path).text("token") == CANARY + "2"
    assert kept.text("other") is None
    written = kept.path.read_bytes()
    assert CANARY.encode() not in written and b"yellow" not in written


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    file(tmp_path).set("token", CANARY, 1)
    made = [tmp_path / "db-secrets", tmp_path / "own" / "keys"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o600, 0o600]
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    for each in made:
        each.chmod(0o640)
        with pytest.raises(Unusable, match=r"mode 0640.*chmod 600"):
            file(tmp_path).text("token")
        each.chmod(0o600)


def test_keys_are_in_the_users_own_configuration_unless_said_otherwise() -> None:
    assert EncryptionKeys().path == default_key_path() and default_key_path().parts[-2:] == ("refold", "keys")


def test_every_changed_byte_of_a_secret_is_an_error_with_its_name(tmp_path: Path) -> None:
    kept = file(tmp_path)
    kept.set("token", CANARY, 1)
    whole = kept.path.read_bytes()
    begin = whole.index(b'"data": "') + len(b'"data": "')
    for at in range(begin, whole.index(b'"', begin)):
        changed = bytes([whole[at] ^ 1]) if whole[at] ^ 1 != ord('"') else b"!"
        kept.path.write_bytes(whole[:at] + changed + whole[at + 1 :])
        with pytest.raises(Corrupt, match="'token'") as caught:
            kept.text("token")
        assert str(kept.path) in str(caught.value)


def test_wherever_a_byte_is_flipped_no_wrong_secret_comes_out(tmp_path: Path) -> None:
    kept = file(tmp_path)
    kept.set("token", CANARY, 1)
    whole = kept.path.read_bytes()
    for at in range(len(whole)):
        kept.path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            found = kept.text("token")
        except RefoldError:
            continue
        assert found in (CANARY, None)  # of white space, or of its name


def test_a_secret_put_in_the_place_of_another_or_made_younger_is_noticed(tmp_path: Path) -> None:
    kept = file(tmp_path)
    kept.set("a", "one-secret", 1)
    kept.set("b", "another-one", 2)
    content = json.loads(kept.path.read_bytes())
    content["secrets"]["a"]["data"] = content["secrets"]["b"]["data"]
    content["secrets"]["b"]["at"] = 3
    kept.path.write_text(json.dumps(content))
    for name in "ab":
        with pytest.raises(Corrupt, match="changed, or moved to another place"):
            kept.text(name)


@pytest.mark.parametrize(
    "data", [b"", b"no json", b"[]", b'{"secrets": {"a": 1}}', b'{"format": 2}', b'{"secrets": {"\xf8": {}}}']
)
def test_a_file_of_something_else_is_an_error_with_its_name(tmp_path: Path, data: bytes) -> None:
    kept = file(tmp_path)
    files.write(kept.path, data)
    with pytest.raises((Corrupt, Unusable), match="db-secrets"):
        kept.text("token")


def test_without_its_key_a_secret_stays_shut_and_nothing_new_is_set_beside_it(tmp_path: Path) -> None:
    kept = file(tmp_path)
    kept.set("token", CANARY, 1)
    id = kept.listed()["token"].key
    kept.keys.path.unlink()
    with pytest.raises(Unusable, match=id):
        kept.text("token")
    with pytest.raises(NotFound, match=id):
        kept.set("other", "whatever", 2)
    assert list(kept.listed()) == ["token"]


def test_rotation_seals_everything_with_a_new_key_and_keeps_the_old_one(tmp_path: Path) -> None:
    kept = file(tmp_path)
    for name in ("a", "b"):
        kept.set(name, CANARY + name, 7)
    [old] = kept.keys.ids()
    new = kept.keys.add()
    assert kept.rotate() == 2
    assert {(each.key, each.at) for each in kept.listed().values()} == {(new, 7)}
    assert kept.keys.ids() == [new, old]
    kept.keys.keep_only(new)
    assert kept.keys.ids() == [new]
    assert [file(tmp_path).text(name) for name in "ab"] == [CANARY + "a", CANARY + "b"]


def test_a_rotation_that_meets_a_damaged_secret_changes_nothing(tmp_path: Path) -> None:
    kept = file(tmp_path)
    kept.set("a", "one-secret", 1)
    kept.set("b", "another-one", 2)
    content = json.loads(kept.path.read_bytes())
    content["secrets"]["b"]["at"] = 3
    kept.path.write_text(json.dumps(content))
    kept.keys.add()
    before = kept.path.read_bytes()
    with pytest.raises(Corrupt, match="'b'"):
        kept.rotate()
    assert kept.path.read_bytes() == before and kept.text("a") == "one-secret"


def test_keys_can_come_from_the_environment_the_present_one_first(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    file(tmp_path, old).set("token", CANARY, 1)
    both = file(tmp_path, f"{new}, {old}")
    assert both.text("token") == CANARY and both.rotate() == 1
    assert file(tmp_path, new).text("token") == CANARY
    with pytest.raises(Unusable, match="REFOLD_KEY"):
        file(tmp_path, old).text("token")
    with pytest.raises(Unusable, match="before the old one"):
        both.keys.add()
    assert not both.keys.path.exists()


NO_KEYS = ["short", "AAAA", b64encode(b"k" * 32).decode() + "é", "=" * 44, b64encode(b"x" * 31).decode()]


@pytest.mark.parametrize("given", NO_KEYS)
def test_what_is_no_key_is_refused_without_being_told(tmp_path: Path, given: str) -> None:
    with pytest.raises(Unusable, match="32 bytes in base64") as caught:
        file(tmp_path, given).set("token", CANARY, 1)
    assert given not in str(caught.value)


def test_many_who_set_at_once_lose_nothing_and_make_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: file(tmp_path).set(f"s{n}", f"secret-{n}", n), range(40)))
    kept = file(tmp_path)
    assert [kept.text(f"s{n}") for n in range(40)] == [f"secret-{n}" for n in range(40)]
    assert len(kept.keys.ids()) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["db-secrets", "db-secrets-lock", "own"]


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = file(tmp_path)
    kept.set("token", CANARY, 1)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unusable, match="No space left"):
        kept.set("token", "another-one", 2)
    assert kept.text("token") == CANARY
    assert sorted(each.name for each in tmp_path.iterdir()) == ["db-secrets", "db-secrets-lock", "own"]


def test_a_secret_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        seen.append("sync")
        sync(descriptor)

    def noted_replace(draft: Path, path: Path) -> None:
        seen.append("replace")
        replace(draft, path)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    files.write(tmp_path / "x", b"y")
    assert seen == ["sync", "replace", "sync"]


def test_to_remove_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    kept = file(tmp_path)
    kept.set("token", CANARY, 1)
    kept.remove("token")
    with pytest.raises(NotFound, match="refold secret list"):
        kept.remove("token")
