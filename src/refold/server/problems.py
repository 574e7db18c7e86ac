"""Errors as RFC 9457 problem documents: what went wrong, why, and what to do next; never a traceback, a path or SQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold import errors

BUSY_AGAIN = "1"  # seconds after which a caller may try again


class HttpProblem(Exception):
    """An answer that is an error. `code` is what programs compare; `detail` is for people."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str = "",
        problems: "Sequence[FieldProblem]" = (),
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """`more` is what the document says besides."""
        self.status, self.code, self.title, self.detail = status, code, title, detail
        self.problems, self.headers, self.more = tuple(problems), dict(headers or {}), dict(more or {})
        super().__init__(f"{status} {code}: {detail or title}")

    def document(self, trace_id: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "type": f"urn:refold:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail or self.title,
            "code": self.code,
            "trace_id": trace_id,
            **self.more,
        }
        return found | ({"errors": self.problems} if self.problems else {})


class FieldProblem(Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong with a request, and where."""

    pointer: str
    detail: str
    line: int = 0
    column: int = 0
    code: str = ""
    hint: str = ""


def unauthenticated(detail: str) -> HttpProblem:
    return HttpProblem(401, "unauthenticated", "A credential is needed", detail, headers={"www-authenticate": "Bearer"})


def forbidden(permission: str) -> HttpProblem:
    return HttpProblem(403, "forbidden", "This is not allowed", f"the permission `{permission}` is missing")


def not_found(detail: str = "there is nothing at this address") -> HttpProblem:
    return HttpProblem(404, "not_found", "Not found", detail)


def invalid(pointer: str, detail: str, hint: str = "") -> HttpProblem:
    return HttpProblem(
        422,
        "invalid_value",
        "A value is not valid",
        f"{pointer or 'the request'}: {detail}",
        [FieldProblem(pointer, detail, hint=hint)],
    )


def too_large(what: str, most: int) -> HttpProblem:
    return HttpProblem(413, "too_large", "The request is too large", f"{what}: at most {most} are allowed")


def of_error(error: errors.RefoldError) -> HttpProblem:
    """Return the problem that stands for a deliberate error of Refold."""
    text = str(error)
    match error:
        case errors.InvalidPlan():
            return HttpProblem(422, "invalid_plan", "The workflow is not valid", text, _plan_problems(error))
        case errors.InvalidValue():
            why = text.removeprefix(f"{error.path}: ")
            return HttpProblem(
                422, "invalid_value", "A value is not valid", text, [FieldProblem(_pointer(error.path), why)]
            )
        case errors.NotFound():
            return HttpProblem(404, "not_found", "Not found", text)
        case errors.CannotMigrate():
            listed = [FieldProblem(step, why) for step, why in error.refusals]
            return HttpProblem(409, "cannot_migrate", "The run cannot follow this plan", text, listed)
        case errors.KeyTaken():
            return HttpProblem(409, "key_taken", "The key belongs to another run", text)
        case errors.LeaseLost():
            return HttpProblem(409, "lost", "The lease is lost", text)
        case errors.Conflict():
            return HttpProblem(409, "conflict", "The state does not allow this", text)
        case errors.RequestRefused():
            return HttpProblem(409, "request_refused", "The run refused the request", text)
        case errors.Unavailable():
            return HttpProblem(
                503, "unavailable", "The store could not answer", "try again", headers={"retry-after": BUSY_AGAIN}
            )
        case errors.Unusable() | errors.Corrupt() | errors.EngineClosed():
            return HttpProblem(
                503, "store_unusable", "The store cannot be used", "ask the operator: the log has the cause"
            )
    return HttpProblem(409, "refused", "This was refused", text)


def _pointer(path: str) -> str:
    return "/" + path.replace(".", "/") if path and not path.startswith("/") else path


def _plan_problems(error: errors.InvalidPlan) -> list[FieldProblem]:
    return [_plan_problem(each) for each in error.problems]


def _plan_problem(each: Any) -> FieldProblem:
    place = getattr(each, "place", None)
    if place is None:
        return FieldProblem("", str(each))
    return FieldProblem("/definition", each.message, place.line, place.column, each.code, each.hint)
