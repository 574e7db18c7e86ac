"""The address of a store on PostgreSQL: a URL as libpq takes it, with three settings of Refold's own."""

import re
from urllib.parse import parse_qsl, quote, urlencode

from msgspec import Struct, structs

from refold.errors import Unusable

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")


class Address(Struct, frozen=True):
    url: str  # for libpq
    schema: str = "refold"
    namespace: str = "default"
    direct_url: str = ""  # the way around a pooler, for the session that hears rings

    @property
    def shown(self) -> str:
        return without_password(self.url)


def read_address(url: str) -> Address:
    """Take the settings of Refold out of the URL. Raises Unusable."""
    place, _, query = url.partition("?")  # the place is kept as it is: without a host it is a socket of this machine
    given = parse_qsl(query, keep_blank_values=True)
    own = {key: value for key, value in given if key.startswith("refold_")}
    schema, namespace = own.pop("refold_schema", "refold"), own.pop("refold_namespace", "default")
    direct = own.pop("refold_direct_url", "")
    if own:
        known = "refold_schema, refold_namespace and refold_direct_url"
        raise Unusable(f"{next(iter(own))} is not a setting; the settings are {known}")
    if SCHEMA.fullmatch(schema) is None:
        raise Unusable(f"refold_schema={schema!r} is not a name of lower-case letters, digits and underscores")
    rest = urlencode([(key, value) for key, value in given if not key.startswith("refold_")], quote_via=quote)
    return Address(f"{place}?{rest}" if rest else place, schema, namespace, direct)


def direct_address(address: Address) -> Address:
    """Where the session of its own is opened."""
    return structs.replace(address, url=address.direct_url, direct_url="") if address.direct_url else address


def without_password(url: str) -> str:
    """The URL as it may be printed."""
    shown = re.sub(r"(://[^/@:]*):[^@/]*@", r"\1@", url)
    return re.sub(r"([?&])(password|sslpassword|refold_direct_url)=[^&]*", r"\1\2=***", shown)
