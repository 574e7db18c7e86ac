"""What a step writes to the context of its run, as data: it is carried out when the step is settled."""

from typing import Any

from msgspec import Struct


class SetKey(Struct, frozen=True, tag="set", omit_defaults=True):
    key: str
    value: Any = None


class DeleteKey(Struct, frozen=True, tag="delete"):
    key: str


class AddTo(Struct, frozen=True, tag="add"):
    key: str
    amount: int | float


class AppendTo(Struct, frozen=True, tag="append", omit_defaults=True):
    key: str
    value: Any = None


class PutIf(Struct, frozen=True, tag="put_if", omit_defaults=True):
    """Set the key if its version is still this one; judged before it becomes a fact."""

    key: str
    version: int
    value: Any = None


Write = SetKey | DeleteKey | AddTo | AppendTo | PutIf
