"""Repairs the losses of a lossy last mile below any UDP transport, with a Packrat gateway.

- `wrap` puts assistance below a protocol of asyncio's datagram endpoints, such as aioquic's.
- `Socket` is the same around a socket that blocks.

The program is the client of every peer that it sends to. Without a gateway, and where assistance
fails, everything passes as it comes.
"""
from ._packrat import PROTOCOL_VERSION, Shim, __version__
from .endpoint import Assistance, assistance_of, wrap
from .peers import Settings, Statistics
from .sockets import Socket

__all__ = [
    "PROTOCOL_VERSION",
    "Assistance",
    "Settings",
    "Shim",
    "Socket",
    "Statistics",
    "__version__",
    "assistance_of",
    "wrap",
]
