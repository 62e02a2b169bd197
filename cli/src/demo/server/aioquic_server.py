"""A file server over HTTP/3, which also keeps uploads: unmodified aioquic, through its public interface.

It ends on SIGTERM and then writes a qlog of the packets that aioquic declared lost.
"""

import argparse
import asyncio
import json
import pathlib
import signal

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated
from aioquic.quic.logger import QuicLogger, QuicLoggerTrace


class LossTrace(QuicLoggerTrace):
    """Keeps only what the demo reads: a full trace of a large download would not fit into memory."""

    def log_event(self, *, category, event, data):
        if (category, event) == ("recovery", "packet_lost"):
            super().log_event(category=category, event=event, data=data)


class LossLogger(QuicLogger):
    def start_trace(self, is_client, odcid):
        trace = LossTrace(is_client=is_client, odcid=odcid)
        self._traces.append(trace)
        return trace


class FileServer(QuicConnectionProtocol):
    files: pathlib.Path
    uploads: pathlib.Path

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._http = None
        self._arriving = {}  # open files by stream

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self._http = H3Connection(self._quic)
        if self._http is None:
            return
        for http_event in self._http.handle_event(event):
            if isinstance(http_event, HeadersReceived):
                self._answer(http_event.stream_id, dict(http_event.headers))
            elif isinstance(http_event, DataReceived) and http_event.stream_id in self._arriving:
                file = self._arriving[http_event.stream_id]
                file.write(http_event.data)
                if http_event.stream_ended:
                    self._arriving.pop(http_event.stream_id).close()
                    self._send(http_event.stream_id, 201, b"")

    def _answer(self, stream, headers):
        # Only plain names of files: no request reaches a file outside the directory.
        name = headers.get(b":path", b"/").decode("utf-8", "replace").lstrip("/")
        file = self.files / name
        if headers.get(b":method") == b"PUT" and "/" not in name and name not in ("", ".", ".."):
            # Received data is written at once: an upload may be cut off.
            self._arriving[stream] = open(self.uploads / name, "wb", buffering=0)
        elif "/" in name or not file.is_file():
            self._send(stream, 404, b"")
        else:
            self._send(stream, 200, file.read_bytes())

    def _send(self, stream, status, body):
        headers = [(b":status", str(status).encode()), (b"content-length", str(len(body)).encode())]
        self._http.send_headers(stream_id=stream, headers=headers)
        self._http.send_data(stream_id=stream, data=body, end_stream=True)
        self.transmit()


async def main():
    parser = argparse.ArgumentParser()
    for option in ("host", "port", "certificate", "key", "files", "uploads", "qlog", "ready"):
        parser.add_argument("--" + option, required=True)
    options = parser.parse_args()

    FileServer.files = pathlib.Path(options.files)
    FileServer.uploads = pathlib.Path(options.uploads)
    logger = LossLogger()
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN, quic_logger=logger)
    configuration.load_cert_chain(options.certificate, options.key)

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = await serve(
        options.host, int(options.port), configuration=configuration, create_protocol=FileServer
    )
    pathlib.Path(options.ready).touch()
    await stopped.wait()
    server.close()
    pathlib.Path(options.qlog).write_text(json.dumps(logger.to_dict()))


asyncio.run(main())
