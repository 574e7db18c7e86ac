"""What a server says about itself to administrators: its store, and its settings with where they come from."""

from typing import Any

from msgspec import to_builtins

from refold.server.routes import Answer, Call


async def show_server(call: Call) -> Answer:
    service = call.service
    health = await service.read(service.views.health)
    facts: dict[str, Any] = to_builtins(service.facts)
    store = {
        "kind": facts.pop("store"),
        "address": facts.pop("address"),
        "bytes": health.size,
        "schema": health.schema,
        "is_writable": health.is_writable,
        "is_durable": health.is_durable,
        "damage": list(health.damage),
    }
    return Answer({"version": service.version, "steers": service.is_steering, "store": store, **facts})
