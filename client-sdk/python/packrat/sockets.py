"""A UDP socket that blocks."""
import collections
import errno
import selectors
import socket
import time
from typing import Any, Deque, Dict, Optional, Tuple, overload

from .peers import Peers, Settings, Statistics

#: poll() if it exists: it takes any descriptor.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)
#: The largest UDP payload.
MOST_BYTES = 65535


class Socket:
    """Assistance around a UDP socket that is not connected. It only works while a thread is in `recvfrom`; one
    thread uses it at a time. The inner socket is switched to non-blocking; its timeout becomes the timeout
    here."""

    def __init__(self, inner: socket.socket, settings: Settings = Settings()) -> None:
        self._inner = inner
        self._ready: Deque[Tuple[bytes, Any]] = collections.deque()
        self._peers = Peers(settings, self._now, self._deliver, self._send)
        self._timeout = inner.gettimeout()
        inner.setblocking(False)

    @staticmethod
    def _now() -> int:
        return time.monotonic_ns() // 1000

    def _deliver(self, datagram: bytes, peer: Any) -> None:
        self._ready.append((datagram, peer))

    def _send(self, control: bytes, peer: Any) -> None:
        try:
            self._inner.sendto(control, peer)
        except OSError:
            pass  # lost, as any datagram may be

    def settimeout(self, timeout: Optional[float]) -> None:
        """The longest wait of `recvfrom` and `sendto` in seconds; 0: no wait; `None`: no limit."""
        self._timeout = timeout

    def sendto(self, datagram: bytes, peer: Any) -> int:
        """Sends a datagram; raises `TimeoutError` when the system has no room for it in time. `peer` is a numeric
        address; datagrams to a name are not assisted."""
        leaving = self._peers.sending(datagram, peer)
        if leaving is None:
            return len(datagram)
        until = self._until()
        while True:
            try:
                return min(self._inner.sendto(leaving, peer), len(datagram))
            except BlockingIOError:
                self._wait(selectors.EVENT_WRITE, self._left(until))
            except OSError as error:
                # There is room for the datagram, but not for the number.
                if error.errno != errno.EMSGSIZE or len(leaving) <= len(datagram):
                    raise
                leaving = datagram

    def recvfrom(self, size: int = MOST_BYTES) -> Tuple[bytes, Any]:
        """Returns the next datagram and its sender; raises `TimeoutError` if no datagram has come in time."""
        until = self._until()
        while True:
            due, now = self._peers.timeout(), self._now()
            if due is not None and due <= now:
                self._peers.handle_timeout()
            if self._ready:
                datagram, peer = self._ready.popleft()
                return datagram[:size], peer
            try:
                datagram, peer = self._inner.recvfrom(MOST_BYTES)
            except BlockingIOError:
                left, due = self._left(until), self._peers.timeout()
                wait = None if due is None else max(due - self._now(), 0) / 1e6
                self._wait(selectors.EVENT_READ, min((at for at in (left, wait) if at is not None), default=None))
            else:
                self._peers.received(datagram, peer)

    def _until(self) -> Optional[float]:
        return None if self._timeout is None else time.monotonic() + self._timeout

    @staticmethod
    def _left(until: Optional[float]) -> Optional[float]:
        """Seconds until then; raises `TimeoutError` when it has come."""
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            raise socket.timeout("timed out")
        return left

    def _wait(self, event: int, seconds: Optional[float]) -> None:
        with _Selector() as selector:
            selector.register(self._inner, event)
            selector.select(seconds)

    @overload
    def statistics(self) -> Dict[Any, Statistics]: ...

    @overload
    def statistics(self, peer: Any) -> Optional[Statistics]: ...

    def statistics(self, peer: Any = None) -> Any:
        """Returns the figures of a peer, or without an argument the figures of all peers by address."""
        return self._peers.statistics(peer)

    def set_access(self, token: bytes, gateway_key: Optional[bytes] = None) -> None:
        """Sets another token, and the gateway to accept (`None`: any, on first use). A session with another gateway
        ends."""
        self._peers.set_access(token, gateway_key)

    def network_changed(self) -> None:
        """The program's address changes: call it before anything is sent from there."""
        self._peers.network_changed()

    def close(self) -> None:
        """Notifies the gateways, and closes the socket."""
        self._peers.close()
        self._inner.close()

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
