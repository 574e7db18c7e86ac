"""Who may do what: permissions, roles, and the credential that a request comes with. Everything here is data."""

import hashlib
import hmac
import secrets
from collections.abc import Collection
from typing import Literal, get_args

from msgspec import Struct

from refold.core.outcomes import Instant
from refold.errors import InvalidValue
from refold.names import did_you_mean

Permission = Literal["read", "values", "start", "operate", "decide", "write", "work", "administer"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
Need = Literal[Permission, "open", "any", "ticket"]
"""What a route asks for: a permission, nothing (`open`), any valid credential, or a ticket in its body."""

ROLES: dict[str, frozenset[Permission]] = {
    "viewer": frozenset({"read"}),
    "operator": frozenset({"read", "values", "start", "operate"}),
    "author": frozenset({"read", "values", "start", "operate", "write"}),
    "approver": frozenset({"read", "values", "decide"}),
    "worker": frozenset({"work"}),
    "admin": frozenset({"read", "values", "start", "operate", "decide", "write", "administer"}),
}
DEFAULT_NAMESPACE = "default"  # the only one that a store has today
ID_LENGTH = 8  # characters of the id of a token
PREFIX = "rfd"


class Credential(Struct, frozen=True):
    """What a request may do. `name` is what every steering fact records as its author."""

    id: str  # of the token
    name: str
    role: str
    permissions: frozenset[Permission]
    namespaces: frozenset[str] = frozenset({DEFAULT_NAMESPACE})
    workflows: frozenset[str] | None = None  # those that it may start and steer; None: all
    queues: tuple[str, ...] | None = None  # those that its worker may serve; None: all
    tools: frozenset[str] | None = None  # those that its worker may run; None: all
    expires_at: Instant | None = None

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions

    def sees(self, workflow: str) -> bool:
        return self.workflows is None or workflow in self.workflows


class Deed(Struct, frozen=True):
    """What somebody did or tried; never a value."""

    by: str  # the name of the token
    token: str  # its id
    address: str
    action: str  # the route
    target: str  # what it was done to: the parameters of the address
    result: int  # the status of the answer
    request: str


class AccessToken(Struct, frozen=True, omit_defaults=True):
    """A token as it is stored: the hash of its secret, and what it may do."""

    id: str
    hash: str
    name: str
    role: str
    permissions: tuple[Permission, ...]
    namespaces: tuple[str, ...] = (DEFAULT_NAMESPACE,)
    workflows: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    created_at: Instant = 0
    expires_at: Instant | None = None
    used_at: Instant | None = None

    def credential(self) -> Credential:
        return Credential(
            self.id,
            self.name,
            self.role,
            frozenset(self.permissions),
            frozenset(self.namespaces),
            None if self.workflows is None else frozenset(self.workflows),
            self.queues,
            None if self.tools is None else frozenset(self.tools),
            self.expires_at,
        )

    def is_valid(self, now: Instant) -> bool:
        return self.expires_at is None or now < self.expires_at


def permissions_of(role: str, plus: Collection[str] = (), minus: Collection[str] = ()) -> tuple[Permission, ...]:
    """Return the permissions of a role, with `decide` added or others taken away. Raises InvalidValue."""
    if role not in ROLES:
        raise InvalidValue("role", f"there is no role {role!r}; {did_you_mean(role, ROLES)}")
    if strange := sorted({*plus} - {"decide"}):
        raise InvalidValue("plus", f"only `decide` can be added to a role, not {strange[0]!r}; take another role")
    if strange := sorted({*minus} - {*PERMISSIONS}):
        raise InvalidValue("minus", f"there is no permission {strange[0]!r}; permissions: {', '.join(PERMISSIONS)}")
    return tuple(each for each in PERMISSIONS if each in (ROLES[role] | {*plus}) - {*minus})


def new_secret() -> str:
    """Return 256 random bits as 43 characters."""
    return secrets.token_urlsafe(32)


def new_id() -> str:
    return secrets.token_hex(ID_LENGTH // 2)


def hash_of(secret: str) -> str:
    """A secret has 256 bits, so a slow hash would protect nothing more."""
    return hashlib.sha256(secret.encode()).hexdigest()


def written_token(id: str, secret: str) -> str:
    return f"{PREFIX}_{id}_{secret}"


def read_token(text: str) -> tuple[str, str] | None:
    """Return id and secret of a token; None if the text cannot be one."""
    prefix, _, rest = text.partition("_")
    id, sign, secret = rest.partition("_")
    if prefix != PREFIX or not sign or len(id) != ID_LENGTH or not id.isalnum() or not text.isascii():
        return None
    return id, secret


def is_secret_of(hash: str, secret: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(hash, hash_of(secret))
