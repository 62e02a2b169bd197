"""Reads what packrat-gateway sends to a collector with OpenTelemetry's own definition of the messages.

Usage: check-otlp.py PACKRAT_GATEWAY
"""

import http.server
import json
import queue
import signal
import socket
import subprocess
import sys
import threading

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE = 60
received = queue.Queue()


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        received.put((self.path, self.headers["Content-Type"], body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def attributes(of):
    return {attribute.key: attribute.value for attribute in of}


def unknown(message):
    """Whether there is a field in it that the definition does not have."""
    return message.SerializeToString(deterministic=True) != strip(message)


def strip(message):
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy.SerializeToString(deterministic=True)


def main(program):
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    server.settimeout(PATIENCE)
    gateway = subprocess.Popen(
        [
            program, "--listen", "127.0.0.1:0", "--drain-seconds", "0",
            "--endpoint", "127.0.0.1:%d" % server.getsockname()[1],
            "--otlp", "http://127.0.0.1:%d" % collector.server_address[1],
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = next(line for line in map(json.loads, gateway.stdout) if line["event"] == "ready")
        host, port = line["listen"].rsplit(":", 1)
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.sendto(b"a question", (host, int(port)))
        server.recv(100)
        gateway.send_signal(signal.SIGTERM)
        found, span = None, None
        while found is None or span is None:
            path, kind, body = received.get(timeout=PATIENCE)
            assert kind == "application/x-protobuf", kind
            if path == "/v1/metrics":
                message = ExportMetricsServiceRequest.FromString(body)
                resource = message.resource_metrics[0]
                for metric in resource.scope_metrics[0].metrics:
                    assert metric.WhichOneof("data") in ("sum", "gauge"), metric
                    if metric.name == "packrat_to_server_bytes_total":
                        found = metric
            else:
                assert path == "/v1/traces", path
                message = ExportTraceServiceRequest.FromString(body)
                resource = message.resource_spans[0]
                span = resource.scope_spans[0].spans[0]
            assert not unknown(message), path
            assert attributes(resource.resource.attributes)["service.name"].string_value == "packrat-gateway"
        point = found.sum.data_points[0]
        assert found.sum.is_monotonic and found.sum.aggregation_temporality == 2 and found.description
        assert point.as_int == len(b"a question") and point.time_unix_nano >= point.start_time_unix_nano > 0
        assert set(attributes(point.attributes)) == {"gateway", "namespace", "route"}
        assert span.name == "packrat.session" and span.kind == 2 and len(span.trace_id) == 16 and len(span.span_id) == 8
        assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
        told = attributes(span.attributes)
        assert told["packrat.to_server_bytes"].int_value == len(b"a question") and told["packrat.route"].string_value
        assert gateway.wait(PATIENCE) == 0
    finally:
        gateway.kill()
    print("OTLP: metrics and spans are read as they were meant")


if __name__ == "__main__":
    main(sys.argv[1])
