"""The package around a shim that the test controls: for events that no real path produces on demand."""
import asyncio
import errno
import select
import socket
import time
import unittest
from unittest import mock

import packrat
from packrat.peers import IDLE, MOST_PEERS, Peers

#: Longest duration of a step on a busy host, in seconds.
PATIENCE = 60


class Led:
    """A shim that keeps every datagram until the test releases it, and makes short ones wait for others if it is due
    at all."""

    def __init__(self, seed, now, **settings):
        self.kept, self.ready, self.control, self.due = [], [], [b"a question"], None
        self.short, self.numbers, self.is_closed = [], settings["uploads"], False

    def bundle(self, datagram, now):
        is_taken = datagram.startswith(b"short")
        if is_taken:
            self.short.append(datagram)
            self.due = now + 8000
        return is_taken

    def sent(self, length):
        pass

    def receive(self, datagram, now):
        if datagram == b"the hole":
            self.ready, self.kept = self.kept, []
            return 0
        if datagram.endswith(b"passes"):
            return 0
        self.kept.append(datagram)
        return None

    def send(self, datagram, now):
        return b"number: " if self.numbers else None

    def deliver(self):
        return self.ready.pop(0) if self.ready else None

    def transmit(self, now):
        if self.short and (self.is_closed or self.due is None):
            short, self.short = self.short, []
            return b"bundle: " + b", ".join(short)
        return self.control.pop() if self.control else None

    def timeout(self):
        return self.due

    def on_timeout(self, now):
        self.due = None
        self.ready, self.kept = self.kept, []

    def waiting_bytes(self):
        return sum(map(len, self.kept))

    def statistics(self):
        return {"waiting": len(self.kept)}

    def close(self, now):
        self.is_closed = True


class Echo(asyncio.DatagramProtocol):
    """Answers each datagram, and must not be called again before it returns."""

    def __init__(self):
        self.seen, self.inside, self.was_entered_again = [], False, False

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.was_entered_again |= self.inside
        self.inside = True
        self.seen.append(data)
        self.transport.sendto(b"answer " + data, addr)
        self.inside = False


class Transport(asyncio.DatagramTransport):
    """Destinations of sent datagrams."""

    def __init__(self):
        super().__init__()
        self.sent, self.was_closed = [], False

    def sendto(self, data, addr=None):
        self.sent.append((data, addr))

    def close(self):
        self.was_closed = True

    def is_closing(self):
        return self.was_closed


@mock.patch("packrat.peers.Shim", Led)
class Released(unittest.TestCase):
    COUNT = 500

    def numbers(self):
        return [str(number).encode() for number in range(self.COUNT)]

    def test_a_protocol_that_answers_each_of_many_released_datagrams_gets_them_one_by_one(self):
        async def run():
            echo, transport = Echo(), Transport()
            wrapped = packrat.wrap(echo)
            wrapped.connection_made(transport)
            echo.transport.sendto(b"hello", "peer")
            for number in self.numbers():
                wrapped.datagram_received(number, "peer")
            self.assertEqual(echo.seen, [], "they wait")
            wrapped.datagram_received(b"the hole", "peer")
            return echo, transport

        echo, transport = asyncio.run(run())
        self.assertEqual(echo.seen, [b"the hole", *self.numbers()])
        self.assertFalse(echo.was_entered_again)
        answers = [data for data, _ in transport.sent if data.startswith(b"answer ")]
        self.assertEqual(answers, [b"answer " + data for data in echo.seen])

    def test_a_wrapped_protocol_is_an_instance_of_its_class(self):
        wrapped = packrat.wrap(Echo())
        self.assertIsInstance(wrapped, Echo)
        self.assertIsInstance(packrat.assistance_of(wrapped), packrat.Assistance)
        with self.assertRaisesRegex(TypeError, "is not assisted"):
            packrat.assistance_of(Echo())

    def test_what_becomes_ready_while_the_program_sends_is_delivered_afterwards(self):
        delivered = []
        peers = Peers(packrat.Settings(), lambda: 1_000_000, lambda *what: delivered.append(what), lambda *_: None)
        peers.sending(b"hello", "peer")
        peers.received(b"kept", "peer")
        peers._shims["peer"].on_timeout(0)
        peers.sending(b"hello", "peer")
        self.assertEqual((delivered, peers.timeout()), ([], 1_000_000))
        peers.handle_timeout()
        self.assertEqual(delivered, [(b"kept", "peer")])

    def test_what_waits_for_others_leaves_in_time_or_when_the_endpoint_closes(self):
        async def run(closes):
            echo, transport = Echo(), Transport()
            wrapped = packrat.wrap(echo)
            wrapped.connection_made(transport)
            for data in [b"hello", b"short 1", b"short 2"]:
                echo.transport.sendto(data, "peer")
            self.assertEqual([data for data, _ in transport.sent], [b"a question", b"hello"], "they wait")
            if closes:
                echo.transport.close()
            while len(transport.sent) < 3:
                await asyncio.sleep(0.001)
            return transport

        for closes in [False, True]:
            transport = asyncio.run(asyncio.wait_for(run(closes), PATIENCE))
            self.assertEqual(transport.sent[2:], [(b"bundle: short 1, short 2", "peer")])
            self.assertEqual(transport.was_closed, closes)

    def test_numbers_go_in_front_of_what_is_sent_where_that_is_wished(self):
        for uploads, leaves in [(True, b"number: hello"), (False, b"hello")]:
            peers = Peers(packrat.Settings(uploads=uploads), lambda: 1, lambda *_: None, lambda *_: None)
            self.assertEqual(peers.sending(b"hello", "peer"), leaves)


@mock.patch("packrat.peers.Shim", Led)
class Idle(unittest.TestCase):
    def setUp(self):
        self.now = 1_000_000
        self.peers = Peers(packrat.Settings(), lambda: self.now, lambda *_: None, lambda *_: None)

    def test_a_peer_that_is_idle_is_forgotten_and_the_others_are_not(self):
        self.peers.sending(b"hello", "idle")
        self.now += IDLE - 1
        self.peers.sending(b"hello", "busy")
        idle = self.peers._shims["idle"]
        self.peers.handle_timeout()
        self.assertFalse(idle.is_closed)
        self.now += 1
        self.assertEqual(self.peers.timeout(), self.now)
        self.peers.handle_timeout()
        self.assertTrue(idle.is_closed)
        self.assertEqual(list(self.peers.statistics()), ["busy"])
        self.assertEqual(self.peers.timeout(), self.now - 1 + IDLE)

    def test_the_earliest_of_many_deadlines_is_known_without_a_look_at_all_shims(self):
        for peer in range(MOST_PEERS):
            self.peers.sending(b"hello", peer)
        self.peers._shims[7].due = self.now + 20
        self.peers.sending(b"hello", 7)
        with mock.patch.object(Led, "timeout", side_effect=AssertionError("it looks at a shim")):
            self.assertEqual(self.peers.timeout(), self.now + 20)


@mock.patch("packrat.peers.Shim", Led)
class Addresses(unittest.TestCase):
    def setUp(self):
        self.now, self.delivered, self.controls = 1_000_000, [], []
        deliver = lambda *what: self.delivered.append(what)
        self.peers = Peers(packrat.Settings(), lambda: self.now, deliver, lambda *what: self.controls.append(what))

    def test_a_peer_is_known_however_its_address_is_written(self):
        for written, said in [
            (("::1", 4433), ("::1", 4433, 0, 0)),
            (("0:0::1", 4434, 0, 0), ("::1", 4434, 0, 0)),
            (("fe80::1%lo", 4433), ("fe80::1%lo", 4433, 0, 1)),
            (("192.0.2.1", 4433), ("::ffff:192.0.2.1", 4433, 0, 0)),
            (("::ffff:192.0.2.2", 4433, 0, 0), ("192.0.2.2", 4433)),
        ]:
            self.delivered.clear()
            self.peers.sending(b"hello", written)
            self.assertEqual(self.controls.pop(), (b"a question", written))
            self.peers.received(b"kept", said)
            self.assertEqual(self.delivered, [], "the shim has it")
            self.peers.received(b"the hole", said)
            self.assertEqual(self.delivered, [(b"the hole", said), (b"kept", said)])
            self.assertIsNotNone(self.peers.statistics(said))
        self.assertEqual(len(self.peers.statistics()), 5)

    def test_a_name_is_sent_to_without_assistance(self):
        self.assertEqual(self.peers.sending(b"hello", ("localhost", 4433)), b"hello")
        self.assertEqual((self.controls, self.peers.statistics()), ([], {}))

    def test_the_gateway_of_a_forgotten_peer_goes_on_numbering_for_a_while(self):
        peer, number = ("192.0.2.1", 4433), b"\x0bPkr\x29\0\0\7"
        report = b"\x0bPkr\x28 a message of the gateway's"
        self.peers.sending(b"hello", peer)
        self.now += IDLE
        self.peers.handle_timeout()
        self.assertEqual(self.peers.statistics(), {})
        for datagram in [number + b"payload", report, number + report, b"plain"]:
            self.peers.received(datagram, peer)
        self.assertEqual(self.delivered, [(b"payload", peer), (b"plain", peer)])
        # It is a peer again, without a session.
        self.peers.sending(b"hello", peer)
        self.peers.received(number + b"it passes", peer)
        self.assertEqual(self.delivered.pop(), (b"it passes", peer))
        # A peer that never was one has its bytes.
        self.peers.received(number + b"payload", ("192.0.2.2", 4433))
        self.assertEqual(self.delivered.pop(), (number + b"payload", ("192.0.2.2", 4433)))


class Wrong(unittest.TestCase):
    def test_a_wrong_setting_is_refused_at_once_and_the_socket_stays_as_it_is(self):
        for wrong in [{"scheme": "other"}, {"maximum_hold": -1.0}, {"gateway_key": b"short"}, {"token": bytes(5000)}]:
            settings = packrat.Settings(**wrong)
            with self.assertRaises(ValueError, msg=wrong):
                packrat.wrap(Echo(), settings)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inner:
                with self.assertRaises(ValueError, msg=wrong):
                    packrat.Socket(inner, settings)
                self.assertIsNone(inner.gettimeout())

    def test_after_a_wrong_token_or_key_all_goes_on_as_before(self):
        peers = Peers(packrat.Settings(token=b"right"), lambda: 1, lambda *_: None, lambda *_: None)
        peers.sending(b"hello", "peer")
        for token, key in [(bytes(5000), None), (b"another", b"short")]:
            with self.assertRaises(ValueError):
                peers.set_access(token, key)
        self.assertEqual(peers.sending(b"hello", "another peer"), b"hello")
        self.assertIsNotNone(peers.statistics("another peer"))


class Waits(unittest.TestCase):
    """Loss on the socket, without a gateway."""

    def setUp(self):
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.server.close)
        self.server.bind(("127.0.0.1", 0))
        self.server.settimeout(PATIENCE)

    def client(self, inner):
        """The assisted socket, and its address after its hello."""
        client = packrat.Socket(inner)
        self.addCleanup(client.close)
        client.sendto(b"hello", self.server.getsockname())
        while True:
            datagram, address = self.server.recvfrom(2048)
            if datagram == b"hello":
                return client, address

    def inner(self):
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def test_a_wait_of_zero_takes_what_is_there(self):
        is_not_to_block = self.inner()
        is_not_to_block.setblocking(False)
        for inner, timeout in [(self.inner(), 0), (is_not_to_block, None)]:
            client, address = self.client(inner)
            if timeout is not None:
                client.settimeout(timeout)
            with self.assertRaises(socket.timeout):
                client.recvfrom()
            self.server.sendto(b"here", address)
            self.assertTrue(select.select([inner], [], [], PATIENCE)[0])
            self.assertEqual(client.recvfrom(), (b"here", self.server.getsockname()))

    def test_a_short_wait_is_over_and_sending_goes_on(self):
        client, _ = self.client(self.inner())
        client.settimeout(0.01)
        begun = time.monotonic()
        with self.assertRaises(socket.timeout):
            client.recvfrom()
        self.assertGreaterEqual(time.monotonic() - begun, 0.01)
        self.assertEqual(client.sendto(b"again", self.server.getsockname()), 5)

    def test_what_has_room_without_its_number_only_leaves_without(self):
        client, _ = self.client(self.inner())
        sent = []

        def sendto(datagram, peer):
            if len(datagram) > 5:
                raise OSError(errno.EMSGSIZE, "too long")
            sent.append(datagram)
            return len(datagram)

        inner = mock.Mock(fileno=client._inner.fileno, sendto=sendto, close=client._inner.close)
        with mock.patch.object(client, "_inner", inner), mock.patch.object(client, "_peers") as peers:
            peers.sending = lambda datagram, peer: b"number: " + datagram
            self.assertEqual(client.sendto(b"again", self.server.getsockname()), 5)
            self.assertEqual(sent, [b"again"])
            with self.assertRaises(OSError):
                client.sendto(b"longer", self.server.getsockname())

    def test_what_waits_for_others_leaves_in_time_or_when_the_socket_closes(self):
        for closes in [False, True]:
            with mock.patch("packrat.peers.Shim", Led):
                client, _ = self.client(self.inner())
            client.settimeout(0)
            self.assertEqual(client.sendto(b"short", self.server.getsockname()), 5)
            if closes:
                client.close()
            leaves, until = [], time.monotonic() + PATIENCE
            self.server.settimeout(0.001)
            while b"bundle: short" not in leaves and time.monotonic() < until:
                try:
                    leaves.append(self.server.recvfrom(2048)[0])
                except socket.timeout:
                    if not closes:
                        with self.assertRaises(socket.timeout):
                            client.recvfrom()
            self.assertIn(b"bundle: short", leaves)
            self.assertNotIn(b"short", leaves)

    def test_a_full_buffer_is_waited_for_when_sending(self):
        client, _ = self.client(self.inner())
        real, refusals = client._inner, [BlockingIOError(), BlockingIOError()]

        def sendto(datagram, peer):
            if refusals:
                raise refusals.pop()
            return real.sendto(datagram, peer)

        with mock.patch.object(client, "_inner", mock.Mock(fileno=real.fileno, sendto=sendto)):
            self.assertEqual(client.sendto(b"again", self.server.getsockname()), 5)
            client.settimeout(0)
            refusals.append(BlockingIOError())
            with self.assertRaises(socket.timeout):
                client.sendto(b"again", self.server.getsockname())


if __name__ == "__main__":
    unittest.main(verbosity=2)
