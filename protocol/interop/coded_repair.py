"""Coded repair: a decoder (docs/PROTOCOL.md, section "Coded repair"). Small and slow on purpose."""

WORD = 2**64 - 1
FIRST_HALF = 770
FIRST, SECOND = 0, 1


def product(a, b):
    """Multiplication in the field of 256 elements."""
    result = 0
    while b:
        if b & 1:
            result ^= a
        a = (a << 1) ^ (0x11D if a & 0x80 else 0)
        b >>= 1
    return result


INVERSE = [0] + [next(b for b in range(1, 256) if product(a, b) == 1) for a in range(1, 256)]
TABLE = [bytes(product(a, b) for b in range(256)) for a in range(256)]


def coefficient(seed, place):
    if seed == 0:
        return 1
    z = ((seed << 32 | (place % 2**32) >> 3) + 1) * 0x9E3779B97F4A7C15 & WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    z ^= z >> 31
    byte = z >> 8 * (place % 8)
    return 1 << (byte & 7) | 1 << (byte >> 3 & 7)


def first_place(low, expected):
    """The place next to `expected` with these lower 32 bits."""
    ahead = (low - expected) % 2**32
    behind = 2**32 - ahead
    return expected + ahead if ahead < behind or behind > expected else expected - behind


def halves(datagram):
    framed = len(datagram).to_bytes(2, "big") + datagram
    return framed[:FIRST_HALF], framed[FIRST_HALF:]


def add(total, factor, part):
    """Adds a multiple of `part` to `total`, of which the shorter one ends in zeros."""
    length = max(len(total), len(part))
    times = part.translate(TABLE[factor]).ljust(length, b"\0")
    return bytes(a ^ b for a, b in zip(total.ljust(length, b"\0"), times))


class Decoder:
    """Datagrams by place, and the equations of both halves, without a limit of memory."""

    def __init__(self):
        self.known = [{}, {}]
        self.equations = [[], []]
        self.datagrams = {}

    def on_datagram(self, place, datagram):
        self.datagrams[place] = datagram
        for half, part in enumerate(halves(datagram)):
            self.known[half].setdefault(place, part)

    def on_repair(self, half, places, seed, symbol):
        """The places that are known after it, and were not before."""
        self.equations[half].append(({place: coefficient(seed, place) for place in places}, symbol))
        found = []
        while self._solve(FIRST) or self._solve(SECOND):
            for place in set(self.known[FIRST]) - set(self.datagrams):
                first = self.known[FIRST][place]
                length = int.from_bytes(first[:2], "big") + 2
                if length <= FIRST_HALF:
                    self.known[SECOND][place] = b""
                elif place not in self.known[SECOND]:
                    continue
                framed = first.ljust(FIRST_HALF, b"\0") + self.known[SECOND][place]
                assert len(framed) >= length and not any(framed[length:]), "garbage"
                self.on_datagram(place, framed[2:length])
                found.append(place)
        return sorted(found)

    def _solve(self, half):
        """Elimination from the beginning; True if a half is known that was not."""
        known, rows = self.known[half], []
        for coefficients, symbol in self.equations[half]:
            row = dict(coefficients)
            for place in [place for place in row if place in known]:
                symbol = add(symbol, row.pop(place), known[place])
            for pivot, other, other_symbol in rows:
                if pivot in row:
                    row, symbol = self._eliminate(row, symbol, pivot, other, other_symbol)
            if not row:
                assert not any(symbol), "a contradiction"
                continue
            pivot = min(row)
            scale = INVERSE[row[pivot]]
            row = {place: product(scale, value) for place, value in row.items()}
            symbol = symbol.translate(TABLE[scale])
            rows = [
                (at, *(self._eliminate(other, right, pivot, row, symbol) if pivot in other else (other, right)))
                for at, other, right in rows
            ] + [(pivot, row, symbol)]
        solved = [(pivot, symbol) for pivot, row, symbol in rows if len(row) == 1]
        known.update(solved)
        return bool(solved)

    @staticmethod
    def _eliminate(row, symbol, pivot, other, other_symbol):
        factor, row = row[pivot], dict(row)
        for place, value in other.items():
            row[place] = row.get(place, 0) ^ product(factor, value)
        return {place: value for place, value in row.items() if value}, add(symbol, factor, other_symbol)
