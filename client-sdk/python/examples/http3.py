"""Downloads a file over HTTP/3 with aioquic, assisted.

Usage: http3.py HOST PORT PATH > FILE
"""
import asyncio
import sys
from typing import Any, Optional

import packrat
from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent


class Http3(QuicConnectionProtocol):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.http = H3Connection(self._quic)
        self.events: asyncio.Queue[Optional[H3Event]] = asyncio.Queue()

    def quic_event_received(self, event: QuicEvent) -> None:
        for of_http in self.http.handle_event(event):
            self.events.put_nowait(of_http)
        if isinstance(event, ConnectionTerminated):
            self.events.put_nowait(None)

    async def get(self, host: str, path: str) -> bytes:
        stream = self._quic.get_next_available_stream_id()
        headers = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", host.encode()), (b":path", path.encode())]
        self.http.send_headers(stream, headers, end_stream=True)
        self.transmit()
        body = b""
        while (event := await self.events.get()) is not None:
            if isinstance(event, DataReceived):
                body += event.data
            if getattr(event, "stream_ended", False):
                return body
        raise ConnectionError("the server has closed the connection before the end of the file")


def assisted(*args: Any, **more: Any) -> QuicConnectionProtocol:
    return packrat.wrap(Http3(*args, **more), packrat.Settings(scheme="trailer"))


async def download(host: str, port: int, path: str) -> bytes:
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN)
    async with connect(host, port, configuration=configuration, create_protocol=assisted) as client:
        assert isinstance(client, Http3)
        body = await client.get(host, path)
        for peer, figures in packrat.assistance_of(client).statistics().items():
            print(peer, figures["condition"], figures["repaired_in_time"], file=sys.stderr)
        return body


if __name__ == "__main__":
    sys.stdout.buffer.write(asyncio.run(download(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
