"""Repairs the losses of a lossy last mile below any UDP transport, with a Packrat gateway.

- `wrap` puts assistance below a protocol of asyncio's datagram endpoints, such as aioquic's.
- `Socket` is the same around a socket that blocks.
- `fetch_token` asks for a token, for gateways that require one.

The program is the client of every peer that it sends to. Without a gateway, and where assistance
fails, everything passes as it comes.
"""
from ._packrat import PROTOCOL_VERSION, Shim, __version__
from .endpoint import Assistance, assistance_of, wrap
from .peers import Settings, Statistics
from .sockets import Socket
from .tokens import Token, TokenError, fetch_token

__all__ = [
    "PROTOCOL_VERSION",
    "Assistance",
    "Settings",
    "Shim",
    "Socket",
    "Statistics",
    "Token",
    "TokenError",
    "__version__",
    "assistance_of",
    "fetch_token",
    "wrap",
]
