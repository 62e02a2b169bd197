"""Tokens by which a gateway assists a client, from its token endpoint over HTTPS."""
import base64
import http.client
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Optional

#: Path of a host's token endpoint.
WELL_KNOWN_PATH = "/.well-known/packrat"
#: Bytes of the longest document.
_MOST_BYTES = 16 * 1024
#: Bytes of the longest token.
_LONGEST_TOKEN = 200
#: Seconds: the longest hold that an endpoint can ask for, and the one without its wish.
_LONGEST_HOLD = 1.0


class TokenError(Exception):
    """The reason that a token endpoint gives no token: its status, or a document that is none of its kind."""


@dataclass(frozen=True)
class Token:
    """A permission with the gateway that it is for: fields of `Settings`, and the arguments of `set_access`."""

    #: The permission, omitted by `repr`.
    token: bytes = field(repr=False)
    #: The gateway's static public key.
    gateway_key: bytes
    #: Seconds: the hold that the endpoint asks for, at most 1.
    maximum_hold: float = _LONGEST_HOLD
    #: Seconds since 1970 at which the permission ends; `None`: unknown.
    expires: Optional[int] = None


class _Direct(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_token(url: str, *, context: Optional[ssl.SSLContext] = None, timeout: float = 10.0) -> Token:
    """Asks the token endpoint at an https URL, follows no redirection, and blocks meanwhile: in asyncio,
    `await asyncio.to_thread(packrat.fetch_token, url)`. `context`: the trusted certificates (`None`: the system's);
    `timeout`: seconds for each step. Raises `ValueError` for another URL, `TokenError` for another answer than a
    token, and `OSError` if no answer comes."""
    parts = urllib.parse.urlsplit(url)
    shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"the URL of the token endpoint is {shown}: it must begin with https:// and a host")
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _Direct)
    try:
        with opener.open(url, timeout=timeout) as response:
            status, document = response.status, response.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            status, document = error.code, b""
    except http.client.HTTPException as error:
        raise TokenError(f"the answer of {shown} is broken: {error!r}") from error
    if status != 200:
        raise TokenError(f"the token endpoint {shown} answers with status {status}")
    try:
        return _parse(document)
    except ValueError as error:
        raise TokenError(f"the answer of {shown} is not that of a token endpoint: {error}") from error


def _parse(document: bytes) -> Token:
    if len(document) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    try:
        fields = _object(json.loads(document), "it")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if fields.get("version") != 1:
        raise ValueError(f"its version is {fields.get('version')}, and 1 is the only one known here")
    key = fields.get("gateway_key")
    if not isinstance(key, str) or not re.fullmatch("[0-9A-Fa-f]{64}", key):
        raise ValueError("gateway_key is not 64 hexadecimal digits")
    hold = _whole_number(_object(fields.get("parameters", {}), "parameters"), "maximum_hold_ms")
    return Token(
        token=_permission(fields.get("token")),
        gateway_key=bytes.fromhex(key),
        maximum_hold=_LONGEST_HOLD if hold is None else min(hold, 1000) / 1000,
        expires=_whole_number(fields, "expires"),
    )


def _object(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    return value


def _whole_number(fields: Any, name: str) -> Optional[int]:
    value = fields.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name} is not a whole number")
    return value


def _permission(text: Any) -> bytes:
    try:
        token = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (TypeError, ValueError):
        token = b""
    # The decoder skips characters of other alphabets.
    if base64.urlsafe_b64encode(token).rstrip(b"=").decode() != text or len(token) > _LONGEST_TOKEN:
        raise ValueError(f"its token is not base64url of at most {_LONGEST_TOKEN} bytes")
    return token
