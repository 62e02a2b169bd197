"""Tokens of an endpoint that runs in this process."""
import datetime
import http.server
import ipaddress
import pathlib
import ssl
import tempfile
import threading
import unittest

import packrat
from packrat.tokens import WELL_KNOWN_PATH, _parse

DOCUMENT = (
    '{"version":1,"gateway_key":"' + "0a" * 32 + '","token":"AQID","expires":9,'
    '"parameters":{"maximum_hold_ms":80,"later":1},"later":[]}'
)


class Endpoint(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, body = {
            WELL_KNOWN_PATH: (200, DOCUMENT),
            "/moved": (302, ""),
            "/html": (200, "<html>"),
            "/long": (200, " " * 20_000 + DOCUMENT),
        }.get(self.path, (404, ""))
        self.send_response(status)
        self.send_header("Location", WELL_KNOWN_PATH)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


def certificate(folder):
    """A file with a key and a certificate for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    file = pathlib.Path(folder, "certificate.pem")
    encoding = serialization.Encoding.PEM
    file.write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(encoding)
    )
    return file


class Tokens(unittest.TestCase):
    def test_a_token_is_fetched_from_its_endpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            try:
                file = certificate(folder)
            except ImportError as error:
                self.skipTest(f"SKIPPED: {error}")
            served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            served.load_cert_chain(file)
            context = ssl.create_default_context(cafile=file)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        server.socket = served.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = f"https://127.0.0.1:{server.server_port}"
        token = packrat.fetch_token(url + WELL_KNOWN_PATH, context=context)
        self.assertEqual(token, packrat.Token(b"\x01\x02\x03", b"\n" * 32, 0.08, 9))
        self.assertNotIn("x02", repr(token))
        for path, part in {"/other": "404", "/moved": "302", "/html": "not that of a", "/long": "more than"}.items():
            with self.assertRaisesRegex(packrat.TokenError, part):
                packrat.fetch_token(url + path, context=context)
        with self.assertRaisesRegex(OSError, "certificate"):
            packrat.fetch_token(url + WELL_KNOWN_PATH)

    def test_a_url_without_https_is_refused(self):
        for url in ("http://127.0.0.1/", "127.0.0.1", "https:///path", "file:///etc/passwd"):
            with self.assertRaisesRegex(ValueError, "must begin with https://"):
                packrat.fetch_token(url)

    def test_an_endpoint_asks_for_a_hold_of_at_most_a_second(self):
        for text, hold in {"0": 0.0, "1000": 1.0, "18446744073709551615": 1.0}.items():
            self.assertEqual(_parse(DOCUMENT.replace("80", text).encode()).maximum_hold, hold)
        self.assertEqual(_parse(DOCUMENT.replace("maximum_hold_ms", "other").encode()).maximum_hold, 1.0)

    def test_wrong_documents_are_refused(self):
        for right, wrong in [
            ('"version":1', '"version":2'), ('"version":1,', ""), ("0a0a", "0a"), ("0a0a", "xx0a"), ("AQID", "AQ+D"),
            ("AQID", "A" * 400), ("AQID", "AQJ"), ('"AQID"', "7"), ("80", "-1"), ("80", '"80"'), ("{", "<html>"),
        ]:
            with self.subTest(wrong), self.assertRaises(ValueError):
                _parse(DOCUMENT.replace(right, wrong, 1).encode())
        for wrong in (b"[]", b"\xff", b"[" * 15_000):
            with self.subTest(wrong[:3]), self.assertRaises(ValueError):
                _parse(wrong)


if __name__ == "__main__":
    unittest.main()
