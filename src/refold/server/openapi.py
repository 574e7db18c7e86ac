"""The OpenAPI 3.1 document, made from the table of routes."""

from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

from msgspec import NODEFAULT, json, structs

from refold.server.routes import Route
from refold.wire import MEDIA

REF = "#/components/schemas/{name}"
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "trace_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "trace_id": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    bodies = [route.body for route in routes if route.body is not None]
    queries = [route.query for route in routes]
    _, schemas = json.schema_components(list(dict.fromkeys([*bodies, *queries])), ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    parts = {query.__name__ for query in queries}
    named = {name: each for name, each in sorted(schemas.items()) if name not in parts}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Refold",
            "version": version,
            "description": "Durable workflows: start, watch and steer runs.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {**named, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "summary": route.about,
        "parameters": [*map(_of_path, route.parameters), *_of_query(route)],
        "responses": {
            str(route.status): {"description": "Done.", "content": {route.media: {}}}
            if route.status != 204
            else {"description": "Done."},
            "default": {
                "description": "What went wrong.",
                "content": {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}},
            },
        },
        "x-refold-permission": route.need,
    }
    if route.need not in ("open", "ticket"):
        found["security"] = [{"token": []}]
    if route.body is not None:
        schema = {"$ref": REF.format(name=route.body.__name__)}
        media = "application/json" if route.takes == "json" else MEDIA
        found["requestBody"] = {"content": {media: {"schema": schema}}}
    elif route.takes == "bytes":
        found["requestBody"] = {"content": {"application/octet-stream": {}}}
    return found


def _of_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _of_query(route: Route) -> list[dict[str, Any]]:
    hints = get_type_hints(route.query)
    found = []
    for each in structs.fields(route.query):
        schema = json.schema(hints[each.name])
        schema.pop("$defs", None)
        plain = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
        found.append(
            {
                "name": each.encode_name,
                "in": "query",
                "required": each.default is NODEFAULT and each.default_factory is NODEFAULT,
                "schema": plain[0] if len(plain) == 1 and type(None) in get_args(hints[each.name]) else schema,
            }
        )
    return found
