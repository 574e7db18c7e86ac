"""The types of the page's requests and answers, from the table of routes.

`python -m docs.build.page_types >web/src/api/generated.ts` writes them.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import json

from refold.server.openapi import REF, document
from refold.server.table import ROUTES

HEAD = """\
// The API in types. Written from the table of routes by `python -m docs.build.page_types`; do not edit it.
"""
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}

Schema = Mapping[str, Any]


def types() -> str:
    described = document([route for route in ROUTES if route.need != "work"], "")  # those are for workers
    schemas: dict[str, Schema] = described["components"]["schemas"]
    return "\n".join([HEAD, *_interfaces(schemas), "", *_routes(described["paths"])]) + "\n"


def _interfaces(schemas: Mapping[str, Schema]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield f"export type {name} = {_type(schema)};"


def _routes(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One member for each method and address: who may use it, what it takes and what it gives."""
    yield "export interface Routes {"
    for path, operations in paths.items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            parts = {
                "permission": json.encode(operation["x-refold-permission"]).decode(),
                "path": _parameters(operation, "path"),
                "query": _parameters(operation, "query"),
                "body": _type(content["schema"]) if content else "undefined",
                "reply": _reply(operation),
            }
            yield f'  "{method.upper()} {path}": {{'
            yield from (f"    {name}: {text};" for name, text in parts.items())
            yield "  };"
    yield "}"


def _parameters(operation: Mapping[str, Any], place: str) -> str:
    found = [each for each in operation["parameters"] if each["in"] == place]
    members = [f"{each['name']}{'' if each['required'] else '?'}: {_type(each['schema'])}" for each in found]
    return f"{{ {'; '.join(members)} }}" if members else "Record<string, never>"


def _reply(operation: Mapping[str, Any]) -> str:
    for status, answer in operation["responses"].items():
        if status != "default":
            for media, content in answer.get("content", {}).items():
                return _type(content["schema"]) if "schema" in content else _without_schema(media)
    return "undefined"


def _without_schema(media: str) -> str:
    return "unknown" if media == "application/json" else "string"


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REF.format(name=""))
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return " | ".join(json.encode(each).decode() for each in schema["enum"])
    if "const" in schema:
        return json.encode(schema["const"]).decode()
    kind = schema.get("type")
    if kind == "array":
        return f"({_type(schema['items'])})[]" if "items" in schema else "unknown[]"
    if kind == "object":
        return _object(schema)
    return PLAIN.get(kind, "unknown") if isinstance(kind, str) else "unknown"


def _object(schema: Schema) -> str:
    if "properties" not in schema:
        more = schema.get("additionalProperties")
        return f"Record<string, {_type(more)}>" if isinstance(more, dict) else "Record<string, unknown>"
    required = schema.get("required", ())
    members = [f"{name}{'' if name in required else '?'}: {_type(each)}" for name, each in schema["properties"].items()]
    return f"{{ {'; '.join(members)} }}" if members else "Record<string, never>"


if __name__ == "__main__":
    sys.stdout.write(types())
