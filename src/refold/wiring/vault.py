"""The secrets of a process, as its pipelines use them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from refold.core.commands import Command
from refold.ports import Entries, Tool, ToolCall

if TYPE_CHECKING:
    from refold.secrets.access import SecretAccess
    from refold.tools.pipeline.secrets import Owner, Render, Vault


def vault_of(room: "SecretAccess", tools: Mapping[str, Tool]) -> "Vault":
    """Return the vault. Nothing is loaded before a pipeline asks for a secret."""
    from refold.tools.pipeline.secrets import Vault

    async def request(keys: Mapping[str, Any]) -> Any:
        """Fetch credentials from a server, through the `http` tool, so that its restrictions hold here too."""
        config = {"url": keys["url"], "method": keys.get("method", "POST"), "headers": keys.get("headers") or {}}
        form = keys.get("data")
        config |= {"data": form} if isinstance(form, Mapping) else {"body": form} if form is not None else {}
        command = Command("keychain", "keychain", 1, 1, "http", input={"input": {}, "config": config})
        answer = await tools["http"](ToolCall("keychain", command, {}))
        return answer["data"]

    def keychain(entries: Sequence[Mapping[str, Any]], owner: "Owner", render: "Render") -> Entries:
        from refold.secrets.keychain import EntryOwner

        return room.keychain(entries, EntryOwner(*owner), render, {}, request)

    return Vault(
        read=room.read,
        keychain=keychain,
        remember=lambda value: room.redactor.remember_result(value),
        conceal=room.redaction.text,
        seal=lambda value, run: room.sealer.seal(value, run),
        open_all=lambda value, run, sealed: room.sealer.open_all(value, run, sealed),
    )
