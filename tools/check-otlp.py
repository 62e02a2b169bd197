"""Reads the messages of gateways to a collector by OpenTelemetry's own definition.

Usage: check-otlp.py PACKRAT_GATEWAY ENVOY
PACKRAT_GATEWAY lies beside Packrat's module for Envoy.
"""

import http.server
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE = 60
QUESTION = b"a question"


class Collector(http.server.ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.received = queue.Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self):
        return "http://127.0.0.1:%d" % self.server_address[1]


class Request(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.put((self.path, self.headers, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def attributes(of):
    return {attribute.key: attribute.value for attribute in of}


def unknown(message):
    """True if it contains a field that the definition does not have."""
    return message.SerializeToString(deterministic=True) != strip(message)


def strip(message):
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy.SerializeToString(deterministic=True)


def standalone(program, server, collector):
    """Starts packrat-gateway; returns the process and the address at which it listens."""
    gateway = subprocess.Popen(
        [
            program, "--listen", "127.0.0.1:0", "--drain-seconds", "0",
            "--endpoint", server, "--otlp", collector.url(),
        ],
        env={**os.environ, "OTEL_EXPORTER_OTLP_HEADERS": "x-token=a%20word"},
        stdout=subprocess.PIPE,
        text=True,
    )
    line = next(line for line in map(json.loads, gateway.stdout) if line["event"] == "ready")
    return gateway, line["listen"]


def envoy(program, modules, server, collector, folder):
    """Starts Envoy with Packrat's module, with the collector in its environment as the operator sets it; returns the same."""
    module = {"name": "packrat_envoy", "do_not_close": True, "metrics_namespace": "packrat"}
    types = "type.googleapis.com/envoy.extensions."
    loopback = {"address": "127.0.0.1", "port_value": 0}
    configuration = {
        "admin": {"address": {"socket_address": loopback}},
        "bootstrap_extensions": [{"name": "packrat", "typed_config": {
            "@type": types + "bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension",
            "dynamic_module_config": module, "extension_name": "packrat",
        }}],
        "static_resources": {"listeners": [{
            "name": "udp",
            "address": {"socket_address": {"protocol": "UDP", **loopback}},
            "udp_listener_config": {"downstream_socket_config": {"prefer_gro": True}},
            "listener_filters": [{"name": "packrat", "typed_config": {
                "@type": types + "filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter",
                "dynamic_module_config": module, "filter_name": "packrat",
                "filter_config": {
                    "@type": "type.googleapis.com/google.protobuf.Struct",
                    "value": {"route": "web", "gateway": "edge", "endpoints": [server]},
                },
            }}],
        }]},
    }
    (folder / "envoy.json").write_text(json.dumps(configuration))
    log = (folder / "log").open("w")
    gateway = subprocess.Popen(
        [
            program, "--config-path", folder / "envoy.json", "--admin-address-path", folder / "admin",
            "--log-level", "warning", "--disable-hot-restart", "--concurrency", "1",
        ],
        env={
            **os.environ,
            "ENVOY_DYNAMIC_MODULES_SEARCH_PATH": str(modules),
            "POD_NAME": "edge-0",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url() + "/before/it/",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-token=a%20word",
        },
        stdout=log,
        stderr=log,
    )
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen("http://%s/packrat" % (folder / "admin").read_text().strip()) as answer:
                return gateway, json.load(answer)["routes"][0]["listeners"][0]
        except (OSError, ValueError, IndexError):
            time.sleep(0.1)
    gateway.kill()
    raise AssertionError("Envoy does not start:\n" + (folder / "log").read_text())


def check(name, start, before=""):
    collector = Collector()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    server.settimeout(PATIENCE)
    gateway, listen = start("127.0.0.1:%d" % server.getsockname()[1], collector)
    try:
        host, port = listen.rsplit(":", 1)
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.settimeout(PATIENCE)
        client.sendto(QUESTION, (host, int(port)))
        asked, client_of_server = server.recvfrom(100)
        server.sendto(asked, client_of_server)
        client.recv(100)
        gateway.send_signal(signal.SIGTERM)
        metrics, span = {}, None
        while not count(metrics, "packrat_session_duration_seconds") or span is None:
            path, headers, body = collector.received.get(timeout=PATIENCE)
            assert headers["Content-Type"] == "application/x-protobuf", headers
            assert headers["x-token"] == "a word", headers
            if path == before + "/v1/metrics":
                message = ExportMetricsServiceRequest.FromString(body)
                resource = message.resource_metrics[0]
                metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
            else:
                assert path == before + "/v1/traces", path
                message = ExportTraceServiceRequest.FromString(body)
                resource = message.resource_spans[0]
                span = resource.scope_spans[0].spans[0]
            assert not unknown(message), path
            of = attributes(resource.resource.attributes)
            assert of["service.name"].string_value == "packrat-gateway" and of["service.instance.id"].string_value
        check_metrics(metrics)
        assert span.name == "packrat.session" and span.kind == 2 and len(span.trace_id) == 16 and len(span.span_id) == 8
        assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
        told = attributes(span.attributes)
        assert told["packrat.to_server_bytes"].int_value == len(QUESTION) and told["packrat.route"].string_value
        assert gateway.wait(PATIENCE) == 0
    finally:
        gateway.kill()
        gateway.wait()
    print("OTLP: what %s sends (%d metrics, spans) is read as it was meant" % (name, len(metrics)))


def count(metrics, name):
    return metrics[name].histogram.data_points[0].count if name in metrics else 0


def check_metrics(metrics):
    kinds = {metric.WhichOneof("data") for metric in metrics.values()}
    assert kinds == {"sum", "gauge", "histogram"}, kinds
    assert not any(name.endswith("_bucket") for name in metrics)
    found = metrics["packrat_to_server_bytes_total"]
    point = found.sum.data_points[0]
    assert found.sum.is_monotonic and found.sum.aggregation_temporality == 2 and found.description
    assert point.as_int == len(QUESTION) and point.time_unix_nano >= point.start_time_unix_nano > 0
    assert set(attributes(point.attributes)) == {"gateway", "namespace", "route"}
    found = metrics["packrat_session_to_client_bytes"]
    point = found.histogram.data_points[0]
    assert found.histogram.aggregation_temporality == 2 and found.description
    assert (point.count, point.sum) == (1, len(QUESTION)) and point.time_unix_nano >= point.start_time_unix_nano > 0
    # Below the first bound, and in no other bucket.
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1 and point.explicit_bounds[0] > len(QUESTION)
    assert list(point.bucket_counts) == [1] + [0] * len(point.explicit_bounds), point.bucket_counts
    assert set(attributes(point.attributes)) == {"gateway", "namespace", "route"}


def main(gateway, envoy_program):
    check("packrat-gateway", lambda server, collector: standalone(gateway, server, collector))
    modules = pathlib.Path(gateway).resolve().parent
    with tempfile.TemporaryDirectory() as folder:
        start = lambda server, collector: envoy(envoy_program, modules, server, collector, pathlib.Path(folder))
        check("Envoy", start, "/before/it")


if __name__ == "__main__":
    main(*sys.argv[1:])
