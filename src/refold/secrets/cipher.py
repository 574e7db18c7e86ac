"""Seals bytes: AES-256-GCM, with what they belong to. Nothing else here knows the library."""

import os
from base64 import b64decode, b64encode

from refold.errors import Corrupt, Unusable

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError:
    raise Unusable("encryption needs one package more: pip install 'refold[secrets]'") from None

NONCE = 12
TAG = 16
KEY = 32


def seal(key: bytes, data: bytes, about: bytes) -> str:
    """In base64."""
    nonce = os.urandom(NONCE)
    return b64encode(nonce + AESGCM(key).encrypt(nonce, data, about)).decode()


def unseal(key: bytes, text: str, about: bytes) -> bytes:
    """Raises Corrupt if one letter of it, or of what it is about, is not what it was."""
    try:
        sealed = b64decode(text, validate=True)
    except ValueError:
        sealed = b""
    if len(sealed) < NONCE + TAG or b64encode(sealed).decode() != text:
        raise Corrupt("it was changed after it was sealed")
    try:
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], about)
    except InvalidTag:
        raise Corrupt("it was changed, or belongs elsewhere, after it was sealed") from None
