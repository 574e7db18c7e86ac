"""The page on secrets tells of every kind and every setting."""

from pathlib import Path

from refold.secrets.keychain_kinds import KINDS
from refold.secrets.names import LARGEST
from refold.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "secrets.md").read_text(encoding="utf-8")


def test_every_kind_of_entry_is_on_the_page() -> None:
    assert [kind for kind in KINDS if f"`{kind}`" not in PAGE] == []


def test_every_setting_and_limit_is_on_the_page() -> None:
    assert {"secrets", "secrets_folder", "key_file", "keyring"} <= set(Settings.__struct_fields__)
    assert [
        name for name in ("SECRETS", "SECRETS_FOLDER", "KEY_FILE", "KEYRING") if f"`REFOLD_{name}`" not in PAGE
    ] == []
    assert f"{LARGEST:,} characters" in PAGE
