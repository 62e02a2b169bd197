"""Control datagrams, params, and sealed messages (docs/PROTOCOL.md, sections 2 to 7 and 10)."""

import hashlib
import random
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

MAGIC = b"\x0bPkr"
VERSION = 2
DISCOVER, OFFER, INIT, INIT_ACK, REFUSAL, SEALED, NUMBERED = 1, 2, 3, 4, 5, 8, 9
REFUSED_FULL, REFUSED_TOKEN, REFUSED_HOLDOUT = 3, 6, 7
EACK, REPORT, RESET, GOODBYE, PATH_CHALLENGE, PATH_RESPONSE, BASELINE, CODED, RECOVERED, HOLES, GROUP_CODED = range(1, 12)
LIVE, STREAM, VERSIONS, NUMBERS = 1, 2, 3, 4
TO_CLIENT, TO_SERVER = 1, 2
DISCOVER_LENGTH, QUESTION_LENGTH, MAXIMUM_LENGTH, MAXIMUM_VERSIONS = 64, 256, 1200, 32
SATURATED_AGE = 65535
REPLAY_WINDOW = 1024
LAST_COUNTER = 2**32 - 1


class Malformed(Exception):
    """Bytes that the specification does not allow."""


def grease():
    """A value that is never assigned."""
    return random.randrange(192, 224)


class Reader:
    """Fields of a message, one after the other."""

    def __init__(self, data):
        self.data = data

    def take(self, length):
        if length > len(self.data):
            raise Malformed("truncated")
        head, self.data = self.data[:length], self.data[length:]
        return head

    def number(self, length):
        return int.from_bytes(self.take(length), "big")

    def rest(self):
        return self.take(len(self.data))

    def end(self):
        if self.data:
            raise Malformed("bytes left over")


def is_control(datagram):
    return len(datagram) >= 5 and datagram[:4] == MAGIC


def _control(kind, fields, length=0):
    return (MAGIC + bytes([VERSION << 4 | kind]) + fields).ljust(length, b"\0")


def _list(values):
    return bytes([len(values)]) + bytes(values)


def discover(nonce, versions, noise=b""):
    if not noise:
        return _control(DISCOVER, nonce + _list(versions), DISCOVER_LENGTH)
    tail = struct.pack(">H", len(noise)) + noise
    return _control(DISCOVER, nonce + _list(versions) + tail, QUESTION_LENGTH)


def offer(nonce, version, cookie_time, cookie):
    return _control(OFFER, nonce + struct.pack(">BI", version, cookie_time) + cookie)


def init(nonce, cookie_time, cookie, noise):
    fields = nonce + struct.pack(">I", cookie_time) + cookie + struct.pack(">H", len(noise))
    return _control(INIT, fields + noise, QUESTION_LENGTH)


def init_ack(nonce, noise):
    return _control(INIT_ACK, nonce + noise)


def refusal(nonce, reason, versions):
    return _control(REFUSAL, nonce + bytes([reason]) + _list(versions))


def sealed(session, counter, ciphertext):
    return _control(SEALED, struct.pack(">II", session, counter) + ciphertext)


def parse_control(datagram):
    """Type and fields of a control datagram, as the client or the gateway would read it."""
    if not is_control(datagram):
        raise Malformed("not a control datagram")
    version, kind = datagram[4] >> 4, datagram[4] & 15
    if version != VERSION and kind not in (DISCOVER, REFUSAL):
        raise Malformed(f"version {version}")
    reader = Reader(datagram[5:])

    def versions():
        count = reader.number(1)
        if count > MAXIMUM_VERSIONS:
            raise Malformed("too many versions")
        return list(reader.take(count))

    if kind == SEALED:
        return kind, {
            "session": reader.number(4), "counter": reader.number(4), "ciphertext": reader.rest()
        }
    fields = {"nonce": reader.take(8)} if kind in (1, 2, 3, 4, 5) else {}
    if kind == DISCOVER and len(datagram) >= DISCOVER_LENGTH:
        fields |= {"versions": versions(), "noise": b""}
        if version == VERSION and len(datagram) >= QUESTION_LENGTH:
            fields["noise"] = reader.take(reader.number(2))
    elif kind == OFFER:
        fields |= {"version": reader.number(1), "cookie_time": reader.number(4)}
        fields["cookie"] = reader.take(16)
        reader.end()
    elif kind == INIT and len(datagram) >= QUESTION_LENGTH:
        fields |= {"cookie_time": reader.number(4), "cookie": reader.take(16)}
        fields["noise"] = reader.take(reader.number(2))
    elif kind == INIT_ACK:
        fields["noise"] = reader.rest()
    elif kind == REFUSAL:
        fields |= {"reason": reader.number(1), "versions": versions()}
        reader.end()
    else:
        raise Malformed(f"type {kind}, or too short")
    return kind, fields


def numbered(number, base):
    return _control(NUMBERED, number.to_bytes(3, "big") + base)


def split_number(datagram):
    """The number and the datagram behind it; None for an unnumbered datagram."""
    if not is_control(datagram) or datagram[4] != VERSION << 4 | NUMBERED or len(datagram) < 8:
        return None
    return int.from_bytes(datagram[5:8], "big"), datagram[8:]


def numbers(flags, largest):
    return record(NUMBERS, struct.pack(">BH", flags, largest))


def prologue(nonce):
    return b"packrat/%d" % VERSION + nonce


def record(kind, value):
    return bytes([kind, len(value)]) + value


def records(data):
    """Values by type; the first of a type counts, and bytes that form no record are ignored."""
    found = {}
    while len(data) >= 2 and len(data) >= 2 + data[1]:
        found.setdefault(data[0], data[2 : 2 + data[1]])
        data = data[2 + data[1] :]
    return found


def client_params(versions, scheme, power_sums, maximum_hold, token=b"", coded_symbols=0, more=b""):
    fields = struct.pack(">BBBI", scheme, coded_symbols, power_sums, maximum_hold)
    return fields + bytes([len(token)]) + token + more + record(VERSIONS, bytes(versions))


def gateway_params(data):
    reader = Reader(data)
    names = [("session", 4), ("scheme", 1), ("coded_symbols", 1), ("power_sums", 1), ("cache_bytes", 4)]
    fields = {name: reader.number(length) for name, length in names}
    fields["secret"] = reader.take(32)
    fields["records"] = records(reader.rest())
    if fields["scheme"] not in (1, 2) or fields["coded_symbols"] < 4 and fields["power_sums"] < 2:
        raise Malformed("params that allow nothing")
    agreed = fields["records"].get(NUMBERS, b"")
    fields["numbered"] = struct.unpack(">BH", agreed[:3]) if len(agreed) >= 3 else (0, 0)
    fields["key_secret"] = fields["records"].get(STREAM, fields["secret"])[:32]
    return fields


def names(agreed):
    """The names of the session, one for each path."""
    if STREAM in agreed["records"]:
        return [agreed["session"]]
    digests = [
        hashlib.sha256(agreed["secret"] + b"packrat/2 name %d" % index).digest() for index in (1, 2, 3)
    ]
    return [agreed["session"]] + [int.from_bytes(digest[:4], "big") for digest in digests]


class Direction:
    """One direction of a sealed channel."""

    def __init__(self, key):
        self.key, self.aead = key, ChaCha20Poly1305(key)
        self.next, self.highest, self.seen = 0, -1, set()

    def mask(self, tag):
        sample = tag[:4] + b"mask" + tag[4:12]
        stream = Cipher(algorithms.ChaCha20(self.key, sample), None).encryptor()
        return int.from_bytes(stream.update(bytes(4)), "big")

    def seal(self, session, plaintext):
        counter, self.next = self.next, self.next + 1
        if counter >= LAST_COUNTER:
            raise Malformed("counter exhausted")
        nonce = bytes(4) + counter.to_bytes(8, "little")
        ciphertext = self.aead.encrypt(nonce, plaintext, sealed(session, counter, b""))
        return sealed(session, counter ^ self.mask(ciphertext[-16:]), ciphertext)

    def open(self, datagram):
        """Counter and plaintext. Only an authentic datagram changes the replay window."""
        kind, fields = parse_control(datagram)
        ciphertext = fields.get("ciphertext", b"")
        if kind != SEALED or len(datagram) > MAXIMUM_LENGTH or len(ciphertext) < 16:
            raise Malformed("not a sealed datagram")
        counter = fields["counter"] ^ self.mask(ciphertext[-16:])
        if counter in self.seen or counter <= self.highest - REPLAY_WINDOW or counter == LAST_COUNTER:
            raise Malformed("replayed")
        nonce = bytes(4) + counter.to_bytes(8, "little")
        try:
            header = sealed(fields["session"], counter, b"")
            plaintext = self.aead.decrypt(nonce, ciphertext, header)
        except InvalidTag as error:
            raise Malformed("forged") from error
        self.highest = max(self.highest, counter)
        self.seen = {old for old in self.seen if old > self.highest - REPLAY_WINDOW} | {counter}
        return counter, plaintext


def age(microseconds):
    return min(microseconds // 16, SATURATED_AGE)


def eack(epoch, encoding, prefix, echo=False, holes=0, newest=None, newest_age=0, anchor=None):
    flags = echo | (anchor is not None) << 1 | (newest is not None) << 2
    message = struct.pack(">BHBB", EACK, epoch, flags, min(holes, 255))
    if newest is not None:
        message += struct.pack(">IH", newest, age(newest_age))
    if anchor is not None:
        message += struct.pack(">I", anchor)
    return message + bytes(encoding) + prefix


REPORT_FIELDS = [
    ("epoch", 2), ("echo", 4), ("echo_age", 2), ("missing", 2), ("settled", 4), ("form", 1), ("count", 1),
    ("round_trip", 4), ("loss", 2), ("queueing", 2), ("repaired", 4), ("repair_transmissions", 4),
    ("unrepairable", 4), ("decode_failures", 4), ("resets", 4), ("cache_high_water", 4),
]  # fmt: skip


def parse_message(plaintext):
    """Type and fields of a gateway's message; no fields: of a type that is to be dropped."""
    reader = Reader(plaintext)
    kind, fields = reader.number(1), None
    if kind == REPORT:
        fields = {name: reader.number(length) for name, length in REPORT_FIELDS}
    elif kind == RESET:
        fields = {"epoch": reader.number(2), "reason": reader.number(1)}
    elif kind == GOODBYE:
        fields = {"reason": reader.number(1)}
    elif kind in (PATH_CHALLENGE, PATH_RESPONSE):
        fields = {"data": reader.take(8)}
    elif kind == CODED:
        fields = {"half": reader.number(1), "first": reader.number(4), "count": reader.number(1)}
        fields |= {"step": reader.number(1), "seed": reader.number(2), "symbol": reader.rest()}
    elif kind == GROUP_CODED:
        fields = {"half": reader.number(1), "first": reader.number(4), "count": reader.number(1)}
        fields |= {"seed": reader.number(2), "names": reader.number(1)}
        fields["names"] = [reader.number(4) for _ in range(fields["names"])]
        fields["symbol"] = reader.rest()
    elif kind == RECOVERED:
        fields = {"total": reader.number(4)}
    elif kind == HOLES:
        fields = {"wanted": reader.number(1), "expected": reader.number(4), "age": reader.number(2)}
        above, fields["runs"] = fields["expected"], []
        while reader.data:
            distance, count = reader.number(2), reader.number(2)
            above = (above - distance - count) % 2**32
            fields["runs"].append((above, count))
    elif kind == BASELINE:
        fields = {"epoch": reader.number(2), "form": reader.number(1), "count": reader.number(1)}
        fields["set"] = reader.rest()
    else:
        return kind, None
    reader.end()
    return kind, fields
