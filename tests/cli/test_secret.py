"""`refold secret`: values come from stdin or a prompt, and no command ever shows one."""

import os
import stat
from base64 import b64encode
from pathlib import Path

from tests.cli.program import Done, refold, terminal

VALUE = "correct-horse-battery"


def secret(folder: Path, *arguments: str, stdin: str = "", **env: str) -> Done:
    own = {"REFOLD_KEY_FILE": str(folder / "own" / "keys"), "REFOLD_SECRETS_FOLDER": str(folder / "mounted")}
    return refold(folder, "secret", *arguments, stdin=stdin, **{**own, **env})


def test_a_secret_is_set_listed_and_removed_and_never_shown(tmp_path: Path) -> None:
    done = secret(tmp_path, "set", "token", stdin=VALUE + "\n")
    assert (done.code, done.out) == (0, "") and "token is kept in refold.db-secrets" in done.err
    assert "replaced" in secret(tmp_path, "set", "token", stdin=VALUE).err
    listed = secret(tmp_path, "list")
    assert listed.out.splitlines()[1].startswith("token  the encrypted file refold.db-secrets")
    [row] = secret(tmp_path, "list", "-o", "json").data
    assert (row["name"], len(row["key"]), row["since"][-1]) == ("token", 12, "Z")
    assert VALUE not in listed.out + listed.err + (tmp_path / "refold.db-secrets").read_text()
    assert secret(tmp_path, "rm", "token").code == 0
    assert secret(tmp_path, "list", "-o", "json").data == []


def test_exit_codes_tell_what_was_wrong(tmp_path: Path) -> None:
    secret(tmp_path, "set", "token", stdin=VALUE)
    assert secret(tmp_path, "rm", "other").code == 3
    assert secret(tmp_path, "set", "../token", stdin=VALUE).code == 2
    assert secret(tmp_path, "set", "empty", stdin="\n").code == 2
    wrong = secret(tmp_path, "set", "token", VALUE)
    assert wrong.code == 2
    (tmp_path / "own" / "keys").chmod(0o644)
    assert (done := secret(tmp_path, "rotate")).code == 5 and "chmod 600" in done.err
    (tmp_path / "own" / "keys").chmod(0o600)
    file = tmp_path / "refold.db-secrets"
    file.write_bytes(file.read_bytes().replace(b'"at": 1', b'"at": 2'))
    assert (done := secret(tmp_path, "rotate")).code == 5 and "'token'" in done.err and "changed" in done.err


def test_a_short_secret_is_kept_with_a_warning(tmp_path: Path) -> None:
    done = secret(tmp_path, "set", "pin", stdin="1234")
    assert done.code == 0 and "not recognised" in done.err


def test_rotation_makes_a_new_key_and_may_forget_the_old_ones(tmp_path: Path) -> None:
    secret(tmp_path, "set", "token", stdin=VALUE)
    keys, seen = tmp_path / "own" / "keys", set[str]()
    for options, count in (((), 2), (("--drop-old",), 1)):
        assert secret(tmp_path, "rotate", *options).code == 0
        seen.add(secret(tmp_path, "list", "-o", "json").data[0]["key"])
        assert sum(not line.startswith("#") for line in keys.read_text().splitlines()) == count
    assert len(seen) == 2 and stat.S_IMODE(keys.stat().st_mode) == 0o600


def test_with_keys_in_the_environment_no_key_file_is_made(tmp_path: Path) -> None:
    old, new = (b64encode(os.urandom(32)).decode() for _ in range(2))
    assert secret(tmp_path, "set", "token", stdin=VALUE, REFOLD_KEY=old).code == 0
    done = secret(tmp_path, "rotate", "--drop-old", REFOLD_KEY=f"{new} {old}")
    assert done.code == 0 and "1 secrets" in done.err and "yours to take out" in done.err
    assert secret(tmp_path, "rotate", REFOLD_KEY=new).code == 0
    assert secret(tmp_path, "rotate", REFOLD_KEY=old).code == 5
    assert not (tmp_path / "own").exists()


def test_names_from_other_places_are_listed_too(tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "cert").write_text(VALUE)
    done = secret(tmp_path, "list", "-o", "json", REFOLD_SECRET_TOKEN=VALUE)
    assert [row["name"] for row in done.data] == ["token", "cert"] and VALUE not in done.out + done.err


def test_a_terminal_asks_twice_and_shows_nothing(tmp_path: Path) -> None:
    with terminal(tmp_path, "secret", "set", "token", REFOLD_KEY_FILE=str(tmp_path / "keys")) as opened:
        opened.until("token:")
        opened.type(VALUE.encode() + b"\n")
        opened.until("once more:")
        opened.type(VALUE.encode() + b"\n")
        assert opened.end() == 0
        assert VALUE.encode() not in opened.raw and b"is kept" in opened.raw
