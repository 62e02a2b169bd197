"""Downloads with aioquic over HTTP/3: unmodified, through its public interface."""

import asyncio
import hashlib
import json
import sys
import time

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

address, file, authority, patience = sys.argv[1:]
WINDOW = 1 << 30


class Download(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.hash = hashlib.sha256()
        self.count = self.status = 0
        self.told = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def quic_event_received(self, event):
        for http_event in self.http.handle_event(event):
            if isinstance(http_event, HeadersReceived):
                self.status = int(dict(http_event.headers)[b":status"])
            if isinstance(http_event, DataReceived):
                self.hash.update(http_event.data)
                self.count += len(http_event.data)
                if time.monotonic() - self.told > 0.1:
                    self.told = time.monotonic()
                    print(json.dumps({"bytes": self.count}), flush=True)
            if getattr(http_event, "stream_ended", False) and not self.done.done():
                self.done.set_result(None)


async def main():
    host, port = address.rsplit(":", 1)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, max_data=WINDOW, max_stream_data=WINDOW)
    configuration.load_verify_locations(authority)
    begun = time.monotonic()
    async with connect(host, int(port), configuration=configuration, create_protocol=Download) as download:
        stream = download._quic.get_next_available_stream_id()
        headers = {":method": "GET", ":scheme": "https", ":authority": "localhost", ":path": "/" + file}
        download.http.send_headers(stream, [(key.encode(), value.encode()) for key, value in headers.items()], end_stream=True)
        download.transmit()
        partial = False
        try:
            await asyncio.wait_for(download.done, float(patience))
        except asyncio.TimeoutError:
            partial = True
        seconds = time.monotonic() - begun
        report = {"bytes": download.count, "sha256": download.hash.hexdigest(), "seconds": seconds}
        print(json.dumps({**report, "status": download.status, "partial": partial}), flush=True)


asyncio.run(main())
