"""The interface for Kotlin and Swift, as Python sees it: through a real gateway and over a last mile that loses 4 %.

Usage: test_path.py PROGRAM    the program packrat-path, which is server, gateway and last mile; packrat_mobile.py and testing/path are on PYTHONPATH
"""
import os
import select
import socket
import struct
import sys
import time
import unittest

from last_mile import Path, address, judged_on_time

import packrat_mobile
from packrat_mobile import DatagramShim, Scheme, SettingError, Settings, Verdict

PROGRAM = None
COUNT = 2000
#: Seconds without a datagram after which no more are expected, even on a busy host.
SILENCE = 10


def now():
    return time.monotonic_ns() // 1000


class Client:
    """The parts of an app around the shim: a socket, a clock, and its own randomness."""

    def __init__(self, peer, settings):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(address(peer))
        self.shim = DatagramShim(settings, os.urandom(32), now())
        self.tag = 0
        self.flush()

    def flush(self):
        while (control := self.shim.transmit(now())) is not None:
            self.socket.send(control)

    def send(self, datagram):
        number = self.shim.send(datagram, now())
        self.socket.send((number or b"") + datagram)
        self.shim.sent(len(datagram))
        self.flush()

    def receive(self, until):
        """Datagrams for the transport, with their tags; empty when the time is over."""
        timeout = self.shim.timeout()
        wait = min(until, until if timeout is None else timeout) - now()
        if select.select([self.socket], [], [], max(wait, 0) / 1e6)[0]:
            datagram = self.socket.recv(2048)
            self.tag += 1
            verdict = self.shim.receive(datagram, self.tag, now())
            if isinstance(verdict, Verdict.NOW):
                yield datagram[verdict.skip:], self.tag
        elif timeout is not None and now() >= timeout:
            self.shim.handle_timeout(now())
        while (delivered := self.shim.deliver()) is not None:
            yield delivered.datagram, delivered.tag
        self.flush()


class LossyPath(unittest.TestCase):
    def test_datagrams_come_repaired_and_in_order(self):
        judged_on_time(self.trial)

    def trial(self):
        with Path(PROGRAM) as path:
            client = Client(path.about["datagrams"], Settings())
            with client.socket:
                seen, order, tags = set(), [], []
                heard = now()
                while COUNT - 1 not in seen and now() - heard < SILENCE * 1_000_000:
                    if not seen:
                        client.send(b"get %d" % COUNT)
                    for datagram, tag in client.receive(now() + 1_000_000):
                        heard = now()
                        (number,) = struct.unpack_from(">I", datagram)
                        if number not in seen:
                            order.append(number)
                        seen.add(number)
                        tags.append(tag)
                figures = {figure.name: figure.value for figure in client.shim.figures()}
                condition = client.shim.condition()
                client.shim.close(now())
                client.flush()
            of_path = path.end()
        lost = of_path["datagrams_lost"]
        said = f"{len(seen)} of {COUNT}, {lost} lost: {figures}"
        self.assertEqual((condition, figures["sessions"]), ("assisted", 1), said)
        self.assertGreater(lost, 40, said)
        self.assertGreater(figures["repaired_in_time"], 0, said)
        # A datagram that symbols recover has the tag of the last arrived one.
        repeated = len(tags) - len(set(tags))
        self.assertLessEqual(repeated, figures["recovered"], "each datagram has the tag that it came with")

        def judge():
            self.assertGreater(figures["repaired_in_time"] * 3, lost, said)
            self.assertLess((COUNT - len(seen)) * 3, lost, said)
            overtaken = sum(before > after for before, after in zip(order, order[1:]))
            self.assertLessEqual(overtaken, figures["repaired_late"] + figures["given_up"] + lost / 10, said)
            print(said, file=sys.stderr)

        return of_path, judge


class Interface(unittest.TestCase):
    def test_wrong_settings_are_refused_with_their_reason(self):
        with self.assertRaisesRegex(SettingError.Length, "seed"):
            DatagramShim(Settings(), b"short", now())
        with self.assertRaisesRegex(SettingError.Length, "gateway key"):
            DatagramShim(Settings(gateway_key=b"short"), bytes(32), now())
        with self.assertRaises(SettingError.Token):
            DatagramShim(Settings(token=bytes(5000)), bytes(32), now())

    def test_without_a_gateway_everything_passes(self):
        shim = DatagramShim(Settings(scheme=Scheme.TRAILER, maximum_hold=0), os.urandom(32), now())
        self.assertEqual(shim.condition(), "asking")
        self.assertGreaterEqual(len(shim.transmit(now())), 64, "a question")
        verdict = shim.receive(b"\x40" + bytes(100), 7, now())
        self.assertTrue(isinstance(verdict, Verdict.NOW) and verdict.skip == 0)
        self.assertIsNone(shim.deliver())
        self.assertIsNone(shim.send(b"datagram", now()))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
