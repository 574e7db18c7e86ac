"""Sealed values: encrypted where they stand, bound to their run, opened only when asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold.errors import Corrupt, Unusable
from refold.secrets.encryption import EncryptionKeys
from refold.secrets.sealer import Sealer, is_sealed
from tests.secrets.rooms import CANARY

VALUES: list[Any] = [CANARY, {"a": [1, None, {"b": CANARY}]}, [], {}, 0, 1.5, None, True, "", {"$sealed": "me"}]


def sealer(folder: Path, told: list[Any] | None = None) -> Sealer:
    return Sealer(EncryptionKeys(folder / "keys"), (told if told is not None else []).append)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(tmp_path: Path, value: Any) -> None:
    sealed = sealer(tmp_path).seal(value, "run-1")
    assert is_sealed(sealed) and "yellow" not in json.dumps(sealed)
    assert sealer(tmp_path).open(sealed, "run-1") == value


def test_a_sealed_value_names_its_key_and_is_never_twice_the_same(tmp_path: Path) -> None:
    one, other = (sealer(tmp_path).seal(CANARY, "run-1")["$sealed"] for _ in range(2))
    assert one != other and one.split(".")[0] == other.split(".")[0] == EncryptionKeys(tmp_path / "keys").ids()[0]


def test_it_opens_for_its_own_run_alone(tmp_path: Path) -> None:
    sealed = sealer(tmp_path).seal(CANARY, "run-1")
    with pytest.raises(Corrupt, match="run-2"):
        sealer(tmp_path).open(sealed, "run-2")


def test_every_changed_letter_is_an_error_with_a_name(tmp_path: Path) -> None:
    opened = sealer(tmp_path)
    text = opened.seal(CANARY, "run-1")["$sealed"]
    for at in range(len(text)):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises((Corrupt, Unusable), match="run-1"):
            opened.open({"$sealed": changed}, "run-1")


def test_after_a_rotation_old_values_still_open(tmp_path: Path) -> None:
    sealed = sealer(tmp_path).seal(CANARY, "run-1")
    new = EncryptionKeys(tmp_path / "keys").add()
    assert sealer(tmp_path).open(sealed, "run-1") == CANARY
    assert sealer(tmp_path).seal(CANARY, "run-1")["$sealed"].startswith(new)
    EncryptionKeys(tmp_path / "keys").keep_only(new)
    with pytest.raises(Unusable, match="not in the file"):
        sealer(tmp_path).open(sealed, "run-1")


def test_all_that_is_sealed_in_a_value_is_opened_and_told_to_the_redactor(tmp_path: Path) -> None:
    told: list[Any] = []
    opened = sealer(tmp_path, told)
    sealed = opened.seal({"token": CANARY}, "run-1")
    value = {"a": [1, {"b": sealed}], "c": {"d": 2}}
    assert opened.open_all(value, "run-1") == {"a": [1, {"b": {"token": CANARY}}], "c": {"d": 2}}
    assert told == [{"token": CANARY}]
    assert value["a"] == [1, {"b": sealed}]


def test_a_value_in_which_nothing_is_sealed_is_handed_on_as_it_is(tmp_path: Path) -> None:
    value = {"a": [1, {"b": "x"}], "$sealed": "no", "s": {"$sealed": 1}}
    assert sealer(tmp_path).open_all(value, "run-1") is value
    assert not (tmp_path / "keys").exists()
