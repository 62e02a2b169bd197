"""A client of packrat/2 on a socket of its own (docs/PROTOCOL.md, sections 3 to 12)."""

import asyncio
import os
import random
import time

import noise
import sketch
import wire

FIRST_RETRY, TRIES = 0.025, 6
BETWEEN_ATTEMPTS, FULL_RETRY, TOKEN_RETRY, HOLDOUT_RETRY = 30, 1, 300, 3600
EVERY_DATAGRAMS, EVERY, WHILE_HOLES, ECHO_INTERVAL = 24, 0.015, 0.010, 0.150
POWER_SUMS = 129
REMEMBERED = 16384


class Refused(Exception):
    """A Refusal; its argument is the reason."""


def next_attempt(refusal, full=0, chance=1.0):
    """Seconds until the next attempt (section 5), after this Refusal or (None) without an answer. `full`: the
    Refusals for lack of room before it, `chance`: 0 to 1."""
    if refusal == wire.REFUSED_FULL:
        most = min(FULL_RETRY * 2**full, BETWEEN_ATTEMPTS)
        return most / 2 + most / 2 * chance
    return {wire.REFUSED_TOKEN: TOKEN_RETRY, wire.REFUSED_HOLDOUT: HOLDOUT_RETRY}.get(
        refusal, BETWEEN_ATTEMPTS
    )


def microseconds():
    return time.monotonic_ns() // 1000


class Client(asyncio.DatagramProtocol):
    """`on_base` gets each datagram of the base connection once it has been recorded, and returns the number
    of missing packets below the newest one. `places`, if numbers are requested, are the places of numbered
    datagrams."""

    def __init__(self, gateway, on_base, scheme=sketch.TRAILER, with_cookie=False, largest=0):
        self.gateway, self.on_base = gateway, on_base
        self.scheme, self.with_cookie, self.largest = scheme, with_cookie, largest
        self.agreed, self.places, self.plain = None, {}, 0
        self.transport = self.session = self.sent = self.received = self.initiator = None
        self.answers = asyncio.Queue()
        self.last_datagram = None
        self.totals = {}
        self.challenges = self.sent_eacks = self.unknown = self.reports = 0
        self.refused = None

    # The socket.

    async def bind(self):
        """A new socket: at first, and when the client moves."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        old, self.transport = self.transport, transport
        if old:
            old.close()
        if self.session and self.names:
            self.session = self.names.pop(0)

    def datagram_received(self, data, _address):
        flags, _ = self.agreed["numbered"] if self.agreed else (0, 0)
        if flags & wire.TO_CLIENT and (split := wire.split_number(data)):
            number, data = split
            if self.session:
                value = self.identify(data)
                place = (number - sketch.mask(self.number_key, value)) % 2**24
                assert self.places.setdefault(value, place) == place, "a repair with another number"
        elif wire.is_control(data):
            try:
                kind, fields = wire.parse_control(data)
            except wire.Malformed:
                if self.session:
                    return
            else:
                self.control(kind, fields, data)
                return
        else:
            self.plain += 1
        self.base(data)

    def send(self, datagram):
        assert len(datagram) <= wire.MAXIMUM_LENGTH or not wire.is_control(datagram)
        self.transport.sendto(datagram, self.gateway)

    # The handshake.

    async def establish(self):
        self.nonce = os.urandom(8)
        versions = [wire.grease(), wire.VERSION]
        wish = wire.numbers(wire.TO_CLIENT | wire.TO_SERVER, self.largest) if self.largest else b""
        payload = wire.client_params(
            versions, self.scheme, POWER_SUMS, 1_000_000,
            more=wire.record(wire.grease(), os.urandom(3)) + wish + wire.record(250, b"private use"),
        )  # fmt: skip
        self.initiator = noise.Initiator(wire.prologue(self.nonce), payload)
        message = b"" if self.with_cookie else self.initiator.message
        question, tries = wire.discover(self.nonce, versions, message), 0
        while not self.session:
            if tries == TRIES:
                raise TimeoutError("no gateway answers")
            self.send(question)
            try:
                answer = await asyncio.wait_for(self.answers.get(), FIRST_RETRY * 2**tries)
            except asyncio.TimeoutError:
                tries += 1
                continue
            kind, fields = answer
            if kind == wire.OFFER and fields["version"] in versions:
                cookie = fields["cookie_time"], fields["cookie"]
                question, tries = wire.init(self.nonce, *cookie, self.initiator.message), 0
            elif kind == wire.REFUSAL:
                raise Refused(fields["reason"])

    def established(self, fields):
        try:
            payload, self.gateway_key, keys = self.initiator.finish(fields["noise"])
            agreed = wire.gateway_params(payload)
        except (noise.NoiseError, wire.Malformed):
            return  # The genuine answer may still come.
        self.agreed, self.names = agreed, wire.names(agreed)
        self.session = self.names.pop(0)
        self.sent, self.received = wire.Direction(keys[0]), wire.Direction(keys[1])
        words = sketch.derive(agreed["key_secret"], b"packrat/2 identifier")
        self.identifier_key = words[:3]
        self.number_key = sketch.derive(agreed["secret"], b"packrat/2 number")[:2]
        self.epoch, self.confirmed, self.wanted = 0, False, None
        self.known, self.newest = {}, None
        self.holes, self.unreported, self.since = 0, 0, None
        self.last_eack = self.last_echo = 0.0
        self.begin_set(self.identify(self.last_datagram) if self.last_datagram else None)

    def begin_set(self, anchor):
        self.anchor, self.urgent = anchor, True
        self.set = sketch.PowerSums(self.agreed["power_sums"])

    def identify(self, datagram):
        return sketch.identifier(self.identifier_key, self.agreed["scheme"], datagram)

    # Arriving datagrams.

    def control(self, kind, fields, datagram):
        if kind == wire.SEALED and self.session:
            try:
                _, plaintext = self.received.open(datagram)
                kind, fields = wire.parse_message(plaintext)
            except wire.Malformed:
                return
            self.message(kind, fields)
        elif fields.get("nonce") == getattr(self, "nonce", None) and not self.session:
            if kind == wire.INIT_ACK:
                self.established(fields)
            self.answers.put_nowait((kind, fields))
        elif kind == wire.REFUSAL and fields["nonce"] == getattr(self, "last_reference", None):
            self.refused = fields["reason"]

    def message(self, kind, fields):
        if fields is None:
            self.unknown += 1
        elif kind == wire.REPORT and fields["epoch"] == self.epoch:
            self.confirmed, self.totals, self.wanted = True, fields, None
            self.reports += 1
            if fields["form"] == sketch.POWER_SUMS:
                self.wanted, self.urgent = min(fields["count"], len(self.set.sums)), True
        elif kind == wire.RESET and 0 < (fields["epoch"] - self.epoch) % 2**16 < 2**15:
            self.epoch, self.confirmed = fields["epoch"], False
            self.begin_set(self.identify(self.last_datagram) if self.last_datagram else None)
        elif kind == wire.PATH_CHALLENGE:
            self.challenges += 1
            self.say(bytes([wire.PATH_RESPONSE]) + fields["data"])
        elif kind == wire.GOODBYE:
            self.session = None

    def base(self, datagram):
        self.last_datagram = datagram
        if not self.session:
            self.on_base(datagram)
            return
        value, now = self.identify(datagram), time.monotonic()
        if value in self.known or value == self.anchor:
            self.unreported += 1  # Perhaps a tail probe: the gateway wants to know.
            self.since = self.since or now
            return
        self.known[value] = now
        if len(self.known) > REMEMBERED:
            self.known.pop(next(iter(self.known)))
        self.set.insert(value)
        holes, is_newest = self.on_base(datagram)
        if is_newest:
            self.newest = value
        self.urgent |= holes > self.holes
        self.holes = holes
        self.unreported += 1
        self.since = self.since or now

    # Datagrams to send.

    def say(self, plaintext):
        datagram = self.sent.seal(self.session, plaintext)
        self.last_reference = datagram[5:13]
        self.send(datagram)

    def say_eack(self, echo=False):
        now = time.monotonic()
        if echo or now - self.last_echo >= ECHO_INTERVAL:
            echo, self.last_echo = True, now
        count = max(min(self.holes + 2, len(self.set.sums)), 2, self.wanted or 0)
        self.say(
            wire.eack(
                self.epoch, (sketch.POWER_SUMS, count), self.set.prefix(count), echo, self.holes,
                self.newest, int((now - self.known.get(self.newest, now)) * 1e6),
                None if self.confirmed else self.anchor,
            )  # fmt: skip
        )
        self.last_eack, self.urgent, self.unreported, self.since = now, False, 0, None
        self.sent_eacks += 1

    def eack_is_due(self):
        now = time.monotonic()
        return (
            self.urgent
            or self.unreported >= EVERY_DATAGRAMS
            or (self.since and now - self.since >= EVERY)
            or (self.holes and now - self.last_eack >= WHILE_HOLES)
            or now - self.last_eack >= ECHO_INTERVAL
        )

    async def speak(self):
        """eACKs, for as long as the session lasts, and now and then something without meaning."""
        while self.session:
            if self.eack_is_due():
                self.say_eack()
                if random.random() < 0.1:
                    self.say(bytes([wire.grease()]) + os.urandom(random.randrange(16)))
            await asyncio.sleep(0.002)

    def goodbye(self):
        self.say(bytes([wire.GOODBYE, 1]))
