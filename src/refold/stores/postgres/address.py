"""The address of a store on PostgreSQL: a URL as libpq takes it, with two settings of Refold's own."""

import re
from urllib.parse import parse_qsl, quote, urlencode

from msgspec import Struct

from refold.errors import Unusable

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")


class Address(Struct, frozen=True):
    url: str  # for libpq
    schema: str = "refold"
    namespace: str = "default"

    @property
    def shown(self) -> str:
        return without_password(self.url)


def read_address(url: str) -> Address:
    """Take `refold_schema` and `refold_namespace` out of the URL. Raises Unusable."""
    place, _, query = url.partition("?")  # the place is kept as it is: without a host it is a socket of this machine
    given = parse_qsl(query, keep_blank_values=True)
    own = {key: value for key, value in given if key.startswith("refold_")}
    schema, namespace = own.pop("refold_schema", "refold"), own.pop("refold_namespace", "default")
    if own:
        raise Unusable(f"{next(iter(own))} is not a setting; the settings are refold_schema and refold_namespace")
    if SCHEMA.fullmatch(schema) is None:
        raise Unusable(f"refold_schema={schema!r} is not a name of lower-case letters, digits and underscores")
    rest = urlencode([(key, value) for key, value in given if not key.startswith("refold_")], quote_via=quote)
    return Address(f"{place}?{rest}" if rest else place, schema, namespace)


def without_password(url: str) -> str:
    """The URL as it may be printed."""
    shown = re.sub(r"(://[^/@:]*):[^@/]*@", r"\1@", url)
    return re.sub(r"([?&])(password|sslpassword)=[^&]*", r"\1\2=***", shown)
