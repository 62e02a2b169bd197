"""Loads a page over HTTP/3 in Chromium as it is, each time with an empty cache and a new connection, and at last a file.

browser.py stands before this script. Each object of the page must have come over HTTP/3 and equal the one
in the server's directory.
"""

import hashlib
import pathlib
from base64 import b64encode

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

address, file, authority, patience, repeats, files, certificate = sys.argv[1:]
LONGEST_LOAD = 120
LOADED = """new Promise(done => {
    const look = () => {
        const [page] = performance.getEntriesByType('navigation');
        if (!page || page.loadEventEnd <= 0) return setTimeout(look, 5);
        done({milliseconds: page.loadEventEnd - page.startTime,
              objects: [page, ...performance.getEntriesByType('resource')].map(entry => [entry.name, entry.nextHopProtocol])});
    };
    look();
})"""
# Loaded parts come from the cache: the bytes that the browser has got.
CONTENTS = """Promise.all(%s.map(async name => {
    const bytes = await (await fetch(name, {cache: 'only-if-cached', mode: 'same-origin'})).arrayBuffer();
    const sum = await crypto.subtle.digest('SHA-256', bytes);
    return [name, Array.from(new Uint8Array(sum), byte => byte.toString(16).padStart(2, '0')).join('')];
}))"""
FILE = """window.got = {bytes: 0, chunks: [], status: 0, over: false, error: ''};
(async () => {
    try {
        const answer = await fetch('/%s', {cache: 'no-store'});
        got.status = answer.status;
        const reader = answer.body.getReader();
        for (;;) {
            const {done, value} = await reader.read();
            if (done) break;
            got.chunks.push(value);
            got.bytes += value.length;
        }
    } catch (error) { got.error = String(error); }
    got.over = true;
})(); 0"""
SUM = """(async () => {
    const bytes = await new Blob(got.chunks).arrayBuffer();
    const sum = Array.from(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)), byte => byte.toString(16).padStart(2, '0'));
    return {bytes: bytes.byteLength, sha256: sum.join('')};
})()"""


def options():
    with open(certificate, "rb") as chain:
        key = x509.load_pem_x509_certificate(chain.read()).public_key()
    key = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    key = b64encode(hashlib.sha256(key).digest()).decode()
    return ["--enable-quic", f"--origin-to-force-quic-on={address}", f"--ignore-certificate-errors-spki-list={key}"]


def check(browser, session, objects):
    names = sorted(path.name for path in pathlib.Path(files).iterdir() if path.name.startswith(("page.", "object-")))
    found = sorted(pathlib.PurePosixPath(name).name for name, _ in objects)
    protocols = {protocol for _, protocol in objects}
    if (found, protocols) != (names, {"h3"}):
        sys.exit(f"the page has other objects or came another way: {found} over {protocols}")
    sums = browser.evaluate(session, CONTENTS % json.dumps([name for name, _ in objects]))
    for name, sum in sums:
        right = hashlib.sha256((pathlib.Path(files) / pathlib.PurePosixPath(name).name).read_bytes()).hexdigest()
        if sum != right:
            sys.exit(f"the browser has got other bytes than those of {name}")


def main(profile):
    browser = Browser(profile, *options())
    times = []
    try:
        for load in range(int(repeats)):
            context, session = browser.open(f"https://{address}/page.html", LONGEST_LOAD)
            loaded = browser.evaluate(session, LOADED, LONGEST_LOAD)
            times.append(loaded["milliseconds"])
            check(browser, session, loaded["objects"])
            if load + 1 < int(repeats):
                browser.ask("Target.disposeBrowserContext", browserContextId=context)
        begun = time.monotonic()
        browser.evaluate(session, FILE % file)
        partial = False
        while True:
            got = browser.evaluate(session, "({bytes: got.bytes, over: got.over, error: got.error, status: got.status})")
            print(json.dumps({"bytes": got["bytes"]}), flush=True)
            if got["error"]:
                sys.exit(f"the file cannot be loaded: {got['error']}")
            if got["over"]:
                break
            if time.monotonic() - begun > float(patience):
                partial = True
                break
            time.sleep(0.05)
        seconds = time.monotonic() - begun
        report = browser.evaluate(session, SUM)
        print(json.dumps({**report, "seconds": seconds, "status": got["status"], "partial": partial, "times_ms": times}), flush=True)
    finally:
        browser.end()


with tempfile.TemporaryDirectory(prefix="packrat-chromium-", ignore_cleanup_errors=True) as profile:
    main(profile)
