"""The shims of one socket, by the peer's address; without a socket and without a clock."""
import collections
import functools
import os
import socket
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, TypedDict, overload

from ._packrat import Shim, base_of

#: Peers of one socket that are assisted at the same time.
MOST_PEERS = 1000
#: Microseconds without a datagram after which a peer is forgotten (RFC 4787, requirement 5).
IDLE = 300_000_000
#: Bytes that may wait for repairs of one peer's; beyond, all of them pass.
MOST_WAITING = 4 << 20
#: Microseconds for which the gateway of a forgotten peer may number, if the goodbye is lost: longer than
#: sessions are idle.
NUMBERING = 180_000_000
#: Control datagrams that leave at one go.
MOST_CONTROL = 64


class Statistics(TypedDict):
    """The figures of a peer, which every SDK has."""

    #: "assisted", "asking" (a gateway is asked for), "no_gateway", "refused", or "failed" (on this host).
    condition: str
    #: Seconds to the gateway and back; `None`: not measured yet.
    round_trip: Optional[float]
    #: Datagrams that the program has sent.
    sent_datagrams: int
    #: Bytes of the datagrams that the program has sent (UDP payload).
    sent_bytes: int
    #: Datagrams that the program got.
    delivered_datagrams: int
    #: Bytes of the datagrams that the program got (UDP payload).
    delivered_bytes: int
    #: Sessions with gateways that were begun.
    sessions: int
    #: Datagrams that were missing when a later one arrived.
    holes: int
    #: Missing datagrams that were repaired before the program could notice.
    repaired_in_time: int
    #: Missing datagrams that were repaired after a later one had been passed on.
    repaired_late: int
    #: Missing datagrams whose wait ended without a repair.
    given_up: int
    #: Datagrams that were put together from the gateway's repair symbols.
    recovered: int
    #: Datagrams that waited for a repair of an earlier one.
    kept: int
    #: Datagrams that came more than once.
    duplicates: int
    #: Control datagrams that were dropped as malformed, forged or replayed.
    control_dropped: int
    #: eACKs to gateways.
    eacks: int
    #: Bytes of eACKs to gateways (UDP payload).
    eack_bytes: int
    #: Bytes of all control datagrams to gateways (UDP payload).
    control_bytes_sent: int
    #: Bytes of all control datagrams from gateways (UDP payload).
    control_bytes_received: int
    #: Datagrams of the program's that left with a number, so that they can be repaired.
    upward_numbered: int
    #: Numbered datagrams that the gateway was missing when a later one had arrived.
    upward_missing: int
    #: Datagrams of the program's that were sent again, repetitions included.
    upward_repairs: int


@dataclass(frozen=True)
class Settings:
    """Settings of assistance. `scheme`: "payload", or "trailer" for QUIC alone, which is faster;
    `maximum_hold`: the longest wait for a repair, in seconds; `gateway_key`: 32 bytes, another gateway is
    refused; `token`: issued by a token endpoint, omitted by `repr`; `uploads`: also repairs the program's
    own datagrams, for transports that reduce their rate after each loss (CUBIC, NewReno), not for BBR."""

    scheme: str = "payload"
    maximum_hold: float = 1.0
    gateway_key: Optional[bytes] = None
    token: Optional[bytes] = field(default=None, repr=False)
    uploads: bool = False


@functools.lru_cache(maxsize=4096)
def _host(text: str) -> Optional[bytes]:
    """The address of a host that is written as a number, as IPv4 also if an IPv6 socket reports it
    mapped; `None`: it is a name."""
    try:
        return socket.inet_pton(socket.AF_INET, text)
    except OSError:
        pass
    try:
        address = socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    except OSError:
        return None
    is_mapped = address.startswith(bytes(10) + b"\xff\xff")
    return address[12:] if is_mapped else address


def _key(peer: Any) -> Any:
    """The key of a peer, the same for all notations of its address; `None`: the peer is a name, whose
    answers come from elsewhere."""
    if not isinstance(peer, tuple) or len(peer) < 2 or not isinstance(peer[0], str):
        return peer
    host = _host(peer[0])
    return None if host is None else (host, peer[1])


class Peers:
    """`deliver(datagram, peer)` is called for datagrams for the program, `send(datagram, peer)` for
    control datagrams, and for the program's datagrams that leave with others. `deliver` may call all
    methods: it is not called again before it returns, and never from within `sending`."""

    def __init__(
        self,
        settings: Settings,
        now: Callable[[], int],
        deliver: Callable[[bytes, Any], None],
        send: Callable[[bytes, Any], None],
    ) -> None:
        self._settings, self._now, self._deliver, self._send = settings, now, deliver, send
        self._token, self._gateway_key = settings.token, settings.gateway_key
        # A wrong setting is refused here, and not when something is sent.
        self._shim(0, self._token, self._gateway_key)
        self._shims: Dict[Any, Shim] = {}
        #: As the program has written it, and as the system does.
        self._addresses: Dict[Any, Any] = {}
        self._sources: Dict[Any, Any] = {}
        self._active: Dict[Any, int] = {}
        #: Peers that were forgotten, and until when their gateways may number.
        self._former: Dict[Any, int] = {}
        self._due: Dict[Any, int] = {}
        #: No peer is due before; the first one may be due later.
        self._earliest: Optional[int] = None
        self._ready: Deque[Tuple[bytes, Any]] = collections.deque()
        self._delivering = False

    def sending(self, datagram: Any, peer: Any) -> Any:
        """Call before the program sends a datagram; the first one to a peer begins the search for a
        gateway. Returns the bytes to send: the datagram, or, if uploads are repaired, the datagram with a
        number in front; `None`: it leaves with others, by `send`. A peer by name is not assisted."""
        address, peer = peer, _key(peer)
        if peer is None:
            return datagram
        shim = self._shims.get(peer)
        if shim is None:
            if len(self._shims) >= MOST_PEERS and not self._make_room():
                return datagram
            shim = self._shims[peer] = self._shim(self._now(), self._token, self._gateway_key)
        self._addresses[peer] = address
        now = self._active[peer] = self._now()
        datagram = bytes(datagram)
        shim.sent(len(datagram))
        leaving: Optional[bytes] = None
        if not shim.bundle(datagram, now):
            leaving = (shim.send(datagram, now) or b"") + datagram
        self._serve(shim, peer)
        return leaving

    def received(self, datagram: bytes, peer: Any) -> None:
        """A datagram arrived."""
        source, peer = peer, _key(peer)
        shim, was_peer = self._shims.get(peer), self._former.get(peer, 0) > self._now()
        if shim is None:
            base = base_of(datagram) if was_peer else datagram
            if base is not None:
                self._ready.append((base, source))
        else:
            now = self._active[peer] = self._now()
            self._sources[peer] = source
            skip = shim.receive(datagram, now)
            if skip is not None:
                base = datagram[skip:] if skip else datagram
                # The number of a session that the shim does not know.
                base = base_of(base) if was_peer and not skip else base
                if base is not None:
                    self._ready.append((base, source))
            self._serve(shim, peer)
            if shim.waiting_bytes() > MOST_WAITING:
                shim.release(now)
                self._serve(shim, peer)
        self._hand_on()

    def timeout(self) -> Optional[int]:
        """Latest time for the next call of `handle_timeout`."""
        if self._ready and not self._delivering:
            return self._now()
        return self._earliest

    def handle_timeout(self) -> None:
        """Time has passed. A peer that has been idle for long is forgotten."""
        now = self._now()
        if self._earliest is not None and self._earliest <= now:
            for peer in [peer for peer, at in self._due.items() if at <= now]:
                shim = self._shims.get(peer)
                if shim is None:
                    continue  # a datagram could not be sent, and the program has closed all
                if now - self._active[peer] >= IDLE:
                    self._end(peer)
                else:
                    shim.on_timeout(now)
                    self._serve(shim, peer)
            self._earliest = min(self._due.values(), default=None)
        self._hand_on()

    def set_access(self, token: bytes, gateway_key: Optional[bytes] = None) -> None:
        """Sets another token, and the gateway to accept (`None`: any, on first use). A session with another
        gateway ends."""
        self._shim(0, token, gateway_key)  # a wrong one is refused, and the others stay
        self._token, self._gateway_key = token, gateway_key
        for peer, shim in list(self._shims.items()):
            shim.set_access(gateway_key, token, self._now())
            self._serve(shim, peer)
        self._hand_on()

    def network_changed(self) -> None:
        """The program's address changes: call it before anything is sent from there."""
        for peer, shim in list(self._shims.items()):
            shim.network_changed(self._now())
            self._serve(shim, peer)
        self._hand_on()

    def close(self) -> None:
        """Closes the socket's flows: notifies the gateways, and delivers the waiting datagrams."""
        while self._shims:
            self._end(next(iter(self._shims)))
        self._hand_on()

    @overload
    def statistics(self) -> Dict[Any, Statistics]: ...

    @overload
    def statistics(self, peer: Any) -> Optional[Statistics]: ...

    def statistics(self, peer: Any = None) -> Any:
        """Returns the figures of a peer; `None` if no datagram was sent to it recently. Without a peer, the
        figures of all peers by address."""
        if peer is not None:
            shim = self._shims.get(_key(peer))
            return shim.statistics() if shim else None
        return {self._addresses[peer]: shim.statistics() for peer, shim in self._shims.items()}

    def _shim(self, now: int, token: Optional[bytes], gateway_key: Optional[bytes]) -> Shim:
        settings = self._settings
        return Shim(
            os.urandom(32),
            now,
            scheme=settings.scheme,
            maximum_hold=settings.maximum_hold,
            gateway_key=gateway_key,
            token=token,
            uploads=settings.uploads,
        )

    def _make_room(self) -> bool:
        peer = min(self._active, key=self._active.__getitem__)
        is_idle = self._now() - self._active[peer] >= IDLE
        if is_idle:
            self._end(peer)
        return is_idle

    def _end(self, peer: Any) -> None:
        shim, now = self._shims.pop(peer), self._now()
        del self._active[peer]
        self._due.pop(peer, None)
        shim.close(now)
        self._serve(shim, peer)
        del self._addresses[peer]
        self._sources.pop(peer, None)
        if len(self._former) >= MOST_PEERS:
            self._former = {peer: until for peer, until in self._former.items() if until > now}
        if len(self._former) < MOST_PEERS:
            self._former[peer] = now + NUMBERING

    def _serve(self, shim: Shim, peer: Any) -> None:
        """Takes the shim's ready datagrams, and records the peer's next deadline."""
        address = self._addresses[peer]
        while (datagram := shim.deliver()) is not None:
            self._ready.append((datagram, self._sources.get(peer, address)))
        controls: List[bytes] = []
        while len(controls) < MOST_CONTROL and (control := shim.transmit(self._now())) is not None:
            controls.append(control)
        if peer in self._shims:
            due, at = self._active[peer] + IDLE, shim.timeout()
            due = self._due[peer] = due if at is None else min(due, at)
            if self._earliest is None or due < self._earliest:
                self._earliest = due
        for control in controls:
            self._send(control, address)

    def _hand_on(self) -> None:
        if self._delivering:
            return  # the call below continues with it
        self._delivering = True
        try:
            while self._ready:
                self._deliver(*self._ready.popleft())
        finally:
            self._delivering = False
