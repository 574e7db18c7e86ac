"""What rules read as `output`: an envelope with status, data, error, and what the kind of tool adds."""

from collections.abc import Mapping
from typing import Any

from refold.core.expressions import Aliased
from refold.core.outcomes import Fault
from refold.templates.noetl_names import error_of, with_statements

ERROR_KEYS = error_of(Fault(""))  # each may be asked for when there is none, and is null then


def envelope(kind: str, data: Any, fault: Fault | None, meta: dict[str, Any]) -> Aliased:
    """Return the envelope of a try. `outcome.result`, which older rules read, is its data."""
    error = error_of(fault)
    told = {
        "status": "ok" if fault is None else "error",
        "data": _data(kind, data),
        "ref": None,
        "error": error if fault is not None else Aliased({}, dict.fromkeys(ERROR_KEYS)),
        "meta": meta,
        **_beside(kind, data, fault),
    }
    return Aliased(told, {"result": told["data"], **dict.fromkeys(("http", "pg", "py"), Aliased({}, _NOTHING))})


def raw(data: Any, fault: Fault | None) -> Aliased:
    """Return `output` for the `set` of a task: the data, and how the try has ended."""
    named = with_statements(data)
    return Aliased(named, {"data": named, "status": "ok" if fault is None else "error", "error": error_of(fault)})


def _data(kind: str, data: Any) -> Any:
    """Return the data of a try, in which a key that an http result does not have is looked up in its body."""
    body = data.get("data") if kind == "http" and isinstance(data, Mapping) else None
    return Aliased(data, body) if isinstance(body, Mapping) else with_statements(data)


def _beside(kind: str, data: Any, fault: Fault | None) -> dict[str, Any]:
    about = fault.data if fault is not None and isinstance(fault.data, Mapping) else data
    match kind:
        case "http" if isinstance(about, Mapping):
            return {"http": {"status": about.get("status_code"), "headers": about.get("headers") or {}}}
        case "postgres" if fault is not None:
            state = about.get("sqlstate") if isinstance(about, Mapping) else None
            return {"pg": {"code": fault.code or state, "sqlstate": state}}
        case "python" if fault is not None:
            return {"py": {"exception": fault.type, "traceback": fault.traceback}}
        case _:
            return {}


class _Nothing(Mapping[str, Any]):
    """A value whose every attribute and key is null."""

    def __getitem__(self, name: str) -> Any:
        return None

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


_NOTHING = _Nothing()
