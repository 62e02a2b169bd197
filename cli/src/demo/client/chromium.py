"""Loads a page over HTTP/3 in Chromium as it is, each time with an empty cache and a new connection, and at last a file.

It speaks the browser's own protocol for tools, over a pair of pipes. Each object of the page must have come over HTTP/3 and equal the one
in the server's directory.
"""

import hashlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64encode

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

address, file, authority, patience, repeats, files, certificate = sys.argv[1:]
PROGRAMS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
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


def find_program():
    named = os.environ.get("PACKRAT_CHROMIUM")
    for name in [named] if named else PROGRAMS:
        if program := shutil.which(name):
            return program
    sys.exit("no Chromium: set PACKRAT_CHROMIUM, or install Debian's package chromium-headless-shell")


class Browser:
    def __init__(self, profile):
        with open(certificate, "rb") as chain:
            key = x509.load_pem_x509_certificate(chain.read()).public_key()
        key = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        key = b64encode(hashlib.sha256(key).digest()).decode()
        theirs_in, self.output = os.pipe()
        self.input, theirs_out = os.pipe()
        # The browser reads from descriptor 3 and writes to descriptor 4. It ends when 3 is closed.
        shell = ["sh", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "sh", find_program(), "--headless", "--remote-debugging-pipe"]
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run",
                   "--no-proxy-server", "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--enable-quic",
                   f"--origin-to-force-quic-on={address}", f"--ignore-certificate-errors-spki-list={key}", "about:blank"]
        self.process = subprocess.Popen(shell + options, stdin=subprocess.DEVNULL, pass_fds=(theirs_in, theirs_out))
        os.close(theirs_in)
        os.close(theirs_out)
        self.number = 0
        self.buffered = b""

    def ask(self, method, session=None, within=30, **parameters):
        self.number += 1
        question = {"id": self.number, "method": method, "params": parameters}
        if session:
            question["sessionId"] = session
        os.write(self.output, json.dumps(question).encode() + b"\0")
        until = time.monotonic() + within
        while True:
            while b"\0" not in self.buffered:
                left = until - time.monotonic()
                if left <= 0 or not select.select([self.input], [], [], left)[0]:
                    sys.exit(f"Chromium has not answered {method} within {within} s")
                more = os.read(self.input, 1 << 20)
                if not more:
                    sys.exit(f"Chromium has ended: status {self.process.wait()}")
                self.buffered += more
            message, self.buffered = self.buffered.split(b"\0", 1)
            message = json.loads(message)
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"Chromium refuses {method}: {message['error']}")
                return message["result"]

    def evaluate(self, session, expression, within=30):
        answer = self.ask("Runtime.evaluate", session, within, expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(f"the page's script has failed: {json.dumps(answer['exceptionDetails'])[:500]}")
        return answer["result"].get("value")

    def open_page(self):
        """A page in a profile of its own: no cache, and no connection of another one."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable", session)
        answer = self.ask("Page.navigate", session, LONGEST_LOAD, url=f"https://{address}/page.html")
        if answer.get("errorText"):
            sys.exit(f"the page cannot be loaded: {answer['errorText']}")
        return context, session


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
    browser = Browser(profile)
    times = []
    try:
        for load in range(int(repeats)):
            context, session = browser.open_page()
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
        # It ends with its input, and so do its own processes, which still write to the profile.
        os.close(browser.output)
        try:
            browser.process.wait(5)
        except subprocess.TimeoutExpired:
            browser.process.kill()
            browser.process.wait()


with tempfile.TemporaryDirectory(prefix="packrat-chromium-", ignore_cleanup_errors=True) as profile:
    main(profile)
