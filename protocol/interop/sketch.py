"""Identifiers and sketches (docs/PROTOCOL.md, sections 8 and 9)."""

import hashlib

import xxhash

P = 2**32 - 5
WORD = 2**64 - 1
TRAILER, PAYLOAD = 1, 2
SCONE_VERSIONS = bytes.fromhex("6f7dc0fd"), bytes.fromhex("ef7dc0fd")
POWER_SUMS, CODED_SYMBOLS = 1, 2


def fold(a, b):
    product = a * b
    return (product & WORD) ^ (product >> 64)


def rotate_left(word, bits):
    bits %= 64
    return (word << bits | word >> (64 - bits)) & WORD


def derive(secret, label):
    """Four 64-bit words from a secret and a label."""
    digest = hashlib.sha256(secret + label).digest()
    return [int.from_bytes(digest[at : at + 8], "big") for at in range(0, 32, 8)]


def behind_scone(datagram):
    """A datagram without the SCONE packet in front, if it has a whole one (section 8)."""
    at = 5
    if datagram[:1] < b"\x80" or datagram[1:at] not in SCONE_VERSIONS:
        return datagram
    for _ in range(2):
        if at >= len(datagram):
            return datagram
        at += 1 + datagram[at]
    return datagram[at:] if at <= len(datagram) else datagram


def identifier(key, scheme, datagram):
    datagram = behind_scone(datagram)
    words = None
    if scheme == TRAILER and len(datagram) >= 16:
        tail = datagram[-16:]
        words = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:], "little")
    if words is None or words[1] == 0:
        digest = xxhash.xxh3_128_intdigest(datagram)
        words = digest & WORD, digest >> 64
    mixed = fold(words[0] ^ key[0], words[1] ^ key[1])
    mixed = fold(mixed ^ key[2], len(datagram) ^ 0x9E3779B97F4A7C15)
    return ((mixed >> 32) * (P - 1) >> 32) + 1


def mask(number_key, value):
    """The mask of a place, from the identifier of the datagram (section 11)."""
    return fold(value ^ number_key[0], number_key[1]) % 2**24


class PowerSums:
    """The sketch that this client keeps: `limit` power sums of a set of identifiers."""

    def __init__(self, limit):
        self.size, self.sums = 0, [0] * limit

    def insert(self, value):
        self.size = (self.size + 1) % 2**16
        power = 1
        for at in range(len(self.sums)):
            power = power * value % P
            self.sums[at] = (self.sums[at] + power) % P

    def add(self, prefix):
        """Adds the set of a Baseline; False if its length is wrong, or it is malformed."""
        sums = [int.from_bytes(prefix[at : at + 4], "big") for at in range(2, len(prefix), 4)]
        if len(prefix) != 2 + 4 * len(self.sums) or any(value >= P for value in sums):
            return False
        self.size = (self.size + int.from_bytes(prefix[:2], "big")) % 2**16
        self.sums = [(own + other) % P for own, other in zip(self.sums, sums)]
        return True

    def prefix(self, count):
        parts = [self.size.to_bytes(2, "big")]
        return b"".join(parts + [value.to_bytes(4, "big") for value in self.sums[:count]])


THRESHOLDS = [171, 128, 102, 85, 73, 64, 57, 51]
RANGES = [(9, 16), (16, 27), (27, 44), (44, 72), (72, 118), (118, 191)]


def _table(start, end):
    weights = [2 * 2**32 // (symbol + 2) for symbol in range(start, end)]
    table = []
    for byte in range(256):
        wanted, reached, symbol = (2 * byte + 1) * sum(weights), 0, start
        for symbol in range(start, end):
            reached += weights[symbol - start]
            if 512 * reached >= wanted:
                break
        table.append(symbol)
    return table


TABLES = [_table(start, end) for start, end in RANGES]


def coded_symbols(key, identifiers, count):
    """A prefix of coded symbols. This client only makes them: it agrees to power sums."""
    state, words = key[0], []
    for at in range(6):
        state = (state + 0x9E3779B97F4A7C15 & WORD) ^ rotate_left(key[1], 11 * at)
        words.append(fold(state, 0xD6E8FEB86659FD93) | at & 1)
    symbols = [0] * 191
    for value in identifiers:
        seed = fold((value | value << 32) ^ words[0], words[1])
        independent = fold(seed ^ words[2], words[3])
        ranges = fold(seed ^ words[4], words[5])
        number = 1 << 44 | ranges >> 52 << 32 | value
        places = [0] + [
            at + 1 for at in range(8) if (independent >> 8 * at & 255) < THRESHOLDS[at]
        ]
        places += [TABLES[at][ranges >> 8 * at & 255] for at in range(6)]
        for place in places:
            symbols[place] = (symbols[place] + number) % 2**48
    return b"".join(symbol.to_bytes(6, "big") for symbol in symbols[:count])
