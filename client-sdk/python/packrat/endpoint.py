"""Assistance below the protocols of asyncio's datagram endpoints."""
import asyncio
from typing import Any, Dict, Optional, TypeVar, cast, overload

from .peers import Peers, Settings, Statistics

P = TypeVar("P", bound=asyncio.DatagramProtocol)


def wrap(protocol: P, settings: Settings = Settings()) -> P:
    """Wraps a protocol with assistance: return the result to asyncio, or to a library such as
    aioquic (`create_protocol`), instead of the protocol. The result also has all other attributes of
    the protocol, and is an instance of its class for `isinstance`; `assistance_of` returns its
    `Assistance`."""
    return cast(P, _Wrapped(protocol, settings))


def assistance_of(protocol: asyncio.DatagramProtocol) -> "Assistance":
    """Returns the assistance of a protocol that `wrap` has returned; raises `TypeError` for others."""
    if type(protocol) is not _Wrapped:
        raise TypeError(f"{protocol!r} is not assisted: it must be the result of packrat.wrap")
    return protocol._assistance


class Assistance:
    """The assistance of one datagram endpoint."""

    def __init__(self, peers: Peers, schedule: Any) -> None:
        self._peers, self._schedule = peers, schedule

    @overload
    def statistics(self) -> Dict[Any, Statistics]: ...

    @overload
    def statistics(self, peer: Any) -> Optional[Statistics]: ...

    def statistics(self, peer: Any = None) -> Any:
        """Returns the figures of a peer, or without an argument the figures of all peers by
        address."""
        return self._peers.statistics(peer)

    def set_access(self, token: bytes, gateway_key: Optional[bytes] = None) -> None:
        """Sets another token, and the gateway to accept (`None`: any, on first use). A session with
        another gateway ends."""
        self._peers.set_access(token, gateway_key)
        self._schedule()

    def network_changed(self) -> None:
        """The program's address changes: call it before anything is sent from there."""
        self._peers.network_changed()
        self._schedule()


class _Transport(asyncio.DatagramTransport):
    """asyncio's transport as the protocol sees it."""

    def __init__(self, inner: asyncio.DatagramTransport, wrapped: "_Wrapped") -> None:
        super().__init__()
        self._inner, self._wrapped = inner, wrapped

    def sendto(self, data: Any, addr: Any = None) -> None:
        leaving = self._wrapped._sending(data, addr)
        if leaving is not None:
            self._inner.sendto(leaving, addr)

    def close(self) -> None:
        self._wrapped._close()
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Wrapped(asyncio.DatagramProtocol):
    def __init__(self, protocol: asyncio.DatagramProtocol, settings: Settings) -> None:
        self._protocol = protocol
        self._peers = Peers(settings, self._now, protocol.datagram_received, self._send)
        self._transport: Optional[asyncio.DatagramTransport] = None
        self._connected: Any = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._armed: Optional[int] = None
        self._assistance = Assistance(self._peers, self._schedule)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._protocol.__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    def _now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e6)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connected = transport.get_extra_info("peername")
        self._protocol.connection_made(_Transport(transport, self))

    def datagram_received(self, data: bytes, addr: Any) -> None:
        try:
            self._peers.received(data, addr)
        finally:
            self._schedule()

    def error_received(self, exc: Exception) -> None:
        self._protocol.error_received(exc)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._transport = None
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _sending(self, data: Any, addr: Any) -> Any:
        leaving = self._peers.sending(data, self._connected if addr is None else addr)
        self._schedule()
        return leaving

    def _send(self, control: bytes, peer: Any) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.sendto(control, None if peer == self._connected else peer)

    def _close(self) -> None:
        self._peers.close()
        self._schedule()

    def _schedule(self) -> None:
        due = self._peers.timeout()
        if due == self._armed:
            return
        if self._timer:
            self._timer.cancel()
        self._armed, self._timer = due, None
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due / 1e6, self._on_timer)

    def _on_timer(self) -> None:
        self._armed = self._timer = None
        try:
            self._peers.handle_timeout()
        finally:
            self._schedule()
