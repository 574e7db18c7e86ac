"""Routes for tokens, signing in and signing out."""

from typing import Any

from msgspec import Struct

from refold.core.times import seconds
from refold.errors import InvalidValue
from refold.queries.runs import stamp
from refold.server.access import DEFAULT_NAMESPACE, AccessToken, permissions_of
from refold.server.credentials import SESSION_FOR, expiry
from refold.server.routes import Answer, Call


class TokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    role: str
    plus: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()
    workflows: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None  # of a worker; nothing: all
    tools: tuple[str, ...] | None = None  # of a worker; nothing: all
    expires: str | None = None  # a span such as 30d, or "never"; nothing: 90 days


class SignInBody(Struct, frozen=True, forbid_unknown_fields=True):
    ticket: str


def token_of(body: TokenBody, now: int) -> AccessToken:
    """Return the token that is asked for, still without id and secret. Raises InvalidValue."""
    if not body.name.strip() or len(body.name) > 100:
        raise InvalidValue("name", "a token needs a name of at most 100 characters: it is the author of what it does")
    return AccessToken(
        id="",
        hash="",
        name=body.name,
        role=body.role,
        permissions=permissions_of(body.role, body.plus, body.minus),
        namespaces=(DEFAULT_NAMESPACE,),
        workflows=body.workflows,
        queues=_of_worker(body, "queues", body.queues),
        tools=_of_worker(body, "tools", body.tools),
        expires_at=expiry(body.expires, now, seconds),
    )


def _of_worker(body: TokenBody, name: str, listed: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if listed is not None and (body.role != "worker" or not listed):
        raise InvalidValue(name, "a list of one or more is for the role `worker` alone")
    return listed


def token_object(token: AccessToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "permissions": list(token.permissions),
        "namespaces": list(token.namespaces),
        "workflows": None if token.workflows is None else list(token.workflows),
        "queues": None if token.queues is None else list(token.queues),
        "tools": None if token.tools is None else list(token.tools),
        "created_at": stamp(token.created_at),
        "expires_at": stamp(token.expires_at or 0),
        "used_at": stamp(token.used_at or 0),
    }


async def list_tokens(call: Call) -> Answer:
    return Answer({"items": [token_object(each) for each in await call.service.credentials.tokens()]})


async def create_token(call: Call) -> Answer:
    """The text of the token is in this answer and nowhere else."""
    token, text = await call.service.credentials.create(token_of(call.body, call.service.now()))
    return Answer({**token_object(token), "token": text}, 201)


async def revoke_token(call: Call) -> Answer:
    await call.service.credentials.revoke(call.path["id"])
    return Answer(status=204)


async def sign_in(call: Call) -> Answer:
    """Exchange the ticket of a sign-in link for a cookie."""
    secret, credential = await call.service.credentials.sign_in(call.body.ticket, call.address)
    cookie = _cookie(call, secret, SESSION_FOR // 1_000_000)
    return Answer(
        {"name": credential.name, "role": credential.role}, headers={"set-cookie": cookie}, by=credential.name
    )


async def sign_out(call: Call) -> Answer:
    if call.session:
        await call.service.credentials.sign_out(call.session)
    return Answer(status=204, headers={"set-cookie": _cookie(call, "", 0)})


def _cookie(call: Call, secret: str, age: int) -> str:
    name, secure = call.service.credentials.cookie, "; Secure" if call.service.options.is_secure else ""
    return f"{name}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}"
