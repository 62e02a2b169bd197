"""The installed package through a real gateway and over a last mile that loses 4 %.

Usage: test_lossy_path.py PROGRAM    the program packrat-path, which is server, gateway and last mile; testing/path is on PYTHONPATH
"""
import asyncio
import contextlib
import hashlib
import io
import pathlib
import socket
import sys
import unittest
from collections import Counter
from unittest import mock

from last_mile import Path, address, judged_on_time

import packrat
from packrat.peers import IDLE, MOST_PEERS, Peers

#: tools/demo-requirements.txt has aioquic from there on.
HAS_AIOQUIC = sys.version_info >= (3, 11)
if HAS_AIOQUIC:
    from aioquic.asyncio import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.quic.configuration import QuicConfiguration

PROGRAM = None
SECONDS = 300
#: Seconds without a datagram after which no more are expected, even on a busy host.
SILENCE = 10


def trusting(path):
    """The configuration of a client that trusts the server."""
    configuration = QuicConfiguration(alpn_protocols=["packrat-test"], server_name=path.about["name"])
    configuration.load_verify_locations(path.file.name)
    return configuration


async def download(path, create_protocol, by):
    """The bytes, and the figures of the assistance."""
    configuration = trusting(path)
    host, port = address(path.about[by])
    async with connect(host, port, configuration=configuration, create_protocol=create_protocol) as client:
        reader, writer = await client.create_stream()
        writer.write(b"the file")
        writer.write_eof()
        contents = await asyncio.wait_for(reader.read(), SECONDS)
        return contents, packrat.assistance_of(client).statistics()


async def upload(path, create_protocol, contents):
    """The server's answer, and the figures of the assistance."""
    configuration = trusting(path)
    host, port = address(path.about["quic"])
    answers = asyncio.get_running_loop().create_future()
    async with connect(
        host,
        port,
        configuration=configuration,
        create_protocol=create_protocol,
        stream_handler=lambda reader, _: answers.set_result(reader),
    ) as client:
        _, writer = await client.create_stream(is_unidirectional=True)
        writer.write(contents)
        writer.write_eof()
        reader = await asyncio.wait_for(answers, SECONDS)
        answer = await asyncio.wait_for(reader.read(), SECONDS)
        return answer, packrat.assistance_of(client).statistics()


class LossyPath(unittest.TestCase):
    def downloaded(self, by):
        """The figures of an assisted download, and of the path to the server of this name."""
        settings = packrat.Settings(scheme="trailer")
        with Path(PROGRAM) as path:
            def assisted(*args, **more):
                return packrat.wrap(QuicConnectionProtocol(*args, **more), settings)

            contents, statistics = asyncio.run(download(path, assisted, by))
            figures = path.end()
        self.assertEqual(hashlib.sha256(contents).hexdigest(), path.about["sha256"])
        (flow,) = statistics.values()
        self.assertEqual((flow["condition"], flow["sessions"]), ("assisted", 1), flow)
        return flow, figures

    @unittest.skipUnless(HAS_AIOQUIC, "aioquic needs Python 3.11")
    def test_aioquic_downloads_and_at_least_a_third_of_the_losses_is_hidden_from_the_server(self):
        def trial():
            flow, figures = self.downloaded("quic")
            lost, dropped, declared = (figures[name] for name in ("quic_lost", "quic_dropped", "declared_lost"))
            self.assertGreater(lost, 60)
            self.assertGreater(flow["repaired_in_time"], 0, flow)

            def judge():
                # Some of the lost ones are control datagrams, repairs, or were lost before the session.
                self.assertGreaterEqual(flow["repaired_in_time"] * 3, lost, flow)
                self.assertLessEqual((declared - dropped) * 3, lost * 2, f"{figures} {flow}")

            return figures, judge

        judged_on_time(trial)

    @unittest.skipUnless(HAS_AIOQUIC, "aioquic needs Python 3.11")
    def test_the_lines_of_the_readme_download(self):
        readme = (pathlib.Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
        lines, said = {"__name__": "lines"}, io.StringIO()
        exec(readme.split("```python\n")[1].split("```")[0], lines)
        with Path(PROGRAM) as path, contextlib.redirect_stdout(said):
            work = lines["download"](*address(path.about["lossless"]), trusting(path))
            contents = asyncio.run(asyncio.wait_for(work, SECONDS))
        self.assertEqual(hashlib.sha256(contents).hexdigest(), path.about["sha256"])
        self.assertIn("assisted", said.getvalue())

    @unittest.skipUnless(HAS_AIOQUIC, "aioquic needs Python 3.11")
    def test_acknowledgements_of_aioquic_leave_together(self):
        def trial():
            flow, figures = self.downloaded("lossless")
            def judge():
                # As many as leave where each acknowledgement and each eACK is a datagram of its own.
                alone = flow["sent_datagrams"] + flow["eacks"]
                self.assertLessEqual(figures["lossless_sent"] + flow["eacks"] // 4, alone, f"{figures} {flow}")

            return figures, judge

        judged_on_time(trial)

    @unittest.skipUnless(HAS_AIOQUIC, "aioquic needs Python 3.11")
    def test_what_aioquic_uploads_comes_again_where_it_is_lost(self):
        settings = packrat.Settings(scheme="trailer", uploads=True)

        def trial():
            with Path(PROGRAM) as path:
                def assisted(*args, **more):
                    return packrat.wrap(QuicConnectionProtocol(*args, **more), settings)

                contents = bytes(path.about["bytes"])
                answer, statistics = asyncio.run(upload(path, assisted, contents))
                figures = path.end()
            self.assertEqual(answer, hashlib.sha256(contents).digest())
            (flow,) = statistics.values()
            lost = figures["quic_lost_upwards"]
            self.assertGreater(lost, 60)
            self.assertGreater(flow["upward_repairs"], 0, flow)

            def judge():
                # Some of the lost ones are repairs, or were lost before the session.
                self.assertGreaterEqual(flow["upward_repairs"] * 2, lost, flow)

            return figures, judge

        judged_on_time(trial)

    def test_a_socket_gets_its_datagrams_repaired_and_in_order(self):
        count = 2000

        def trial():
            with Path(PROGRAM) as path, packrat.Socket(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as udp:
                peer = address(path.about["datagrams"])
                numbers = []
                while count - 1 not in numbers:
                    # The question may be lost.
                    udp.settimeout(SILENCE if numbers else 1)
                    try:
                        datagram, sender = udp.recvfrom()
                    except socket.timeout:
                        if numbers:
                            break
                        udp.sendto(f"get {count}".encode(), peer)
                        continue
                    self.assertEqual((sender, len(datagram)), (peer, 1200))
                    numbers.append(int.from_bytes(datagram[:4], "big"))
                flow = udp.statistics(peer)
                figures = path.end()
            lost = figures["datagrams_lost"]
            self.assertEqual((flow["condition"], flow["sessions"]), ("assisted", 1), flow)
            self.assertGreater(lost, 40)
            self.assertGreater(flow["repaired_in_time"], 0, flow)

            def judge():
                self.assertGreaterEqual(flow["repaired_in_time"] * 3, lost, flow)
                self.assertLessEqual((count - len(set(numbers))) * 3, lost, flow)
                once = list(dict.fromkeys(numbers))  # any path may have copies
                overtaken = sum(later < earlier for earlier, later in zip(once, once[1:]))
                self.assertLessEqual(overtaken, flow["repaired_late"] + flow["given_up"] + lost // 10, flow)

            return figures, judge

        judged_on_time(trial)

    def test_a_program_gets_no_numbered_datagram_twice(self):
        arrived = []

        class Recording:
            def __init__(self, *arguments, **settings):
                self.shim = packrat.Shim(*arguments, **settings)

            def receive(self, datagram, now):
                arrived.append(bytes(datagram))
                return self.shim.receive(datagram, now)

            def __getattr__(self, name):
                return getattr(self.shim, name)

        count = 1500
        inner = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        settings = packrat.Settings(maximum_hold=0.0)
        with mock.patch("packrat.peers.Shim", Recording), Path(PROGRAM) as path, packrat.Socket(inner, settings) as udp:
            peer, came = address(path.about["datagrams"]), []
            while len(set(came)) < count:
                # The question may be lost, and so may the last answers.
                udp.settimeout(1 if not came or int.from_bytes(came[-1][:4], "big") > count - 10 else SILENCE)
                try:
                    came.append(udp.recvfrom()[0])
                except socket.timeout:
                    if came:
                        break
                    udp.sendto(f"get {count}".encode(), peer)
            flow = udp.statistics(peer)
            figures = path.end()
        # A datagram that symbols recover comes once without having arrived; one without a number may be the
        # server's own.
        number = b"\x0bPkr\x29"
        most = Counter(datagram for datagram in arrived if not datagram.startswith(number))
        most.update({datagram[8:] for datagram in arrived if datagram.startswith(number)})
        self.assertEqual([times for datagram, times in Counter(came).items() if times > max(1, most[datagram])], [], flow)
        self.assertGreater(figures["datagrams_lost"], 20)
        self.assertGreater(len(set(came)), 1000, flow)


class Arguments(unittest.TestCase):
    def test_bad_settings_are_refused_with_their_reason(self):
        for reason, arguments in [
            ("32 random bytes", {"seed": b"few"}),
            ("scheme", {"scheme": "other"}),
            ("seconds", {"maximum_hold": -1.0}),
            ("32 bytes", {"gateway_key": b"short"}),
            ("token", {"token": bytes(5000)}),
        ]:
            seed = arguments.pop("seed", bytes(32))
            with self.assertRaisesRegex(ValueError, reason):
                packrat.Shim(seed, 1, **arguments)

    def test_without_a_gateway_everything_passes(self):
        shim = packrat.Shim(bytes(32), 1_000_000)
        self.assertIsNotNone(shim.transmit(1_000_000), "the question for a gateway")
        self.assertEqual(shim.receive(b"hello", 1_000_000), 0)
        self.assertIsNone(shim.deliver())
        self.assertEqual(shim.statistics()["delivered_bytes"], 5)

    def test_statistics_have_the_figures_that_their_type_says(self):
        statistics = packrat.Shim(bytes(32), 1).statistics()
        self.assertEqual(list(statistics), list(packrat.Statistics.__annotations__))

    def test_a_token_is_not_shown(self):
        self.assertNotIn("secret", repr(packrat.Settings(token=b"secret")))


class ManyPeers(unittest.TestCase):
    def test_one_that_is_idle_makes_room_and_its_gateway_is_not_asked_any_more(self):
        now, sent, delivered = [1_000_000], [], []
        peers = Peers(packrat.Settings(), lambda: now[0], lambda *what: delivered.append(what),
                      lambda control, peer: sent.append(peer))
        for peer in range(MOST_PEERS + 1):
            peers.sending(b"hello", peer)
        self.assertEqual(sent, list(range(MOST_PEERS)), "the last one is not assisted")
        now[0] += IDLE
        peers.received(b"hello", 0)
        self.assertEqual(delivered, [(b"hello", 0)])
        peers.sending(b"hello", MOST_PEERS)
        self.assertEqual(sent[-1], MOST_PEERS)
        self.assertEqual([peers.statistics(peer) is None for peer in range(3)], [False, True, False])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
