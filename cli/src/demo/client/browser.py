"""Chromium as it is, spoken to in the browser's own protocol for tools."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAMS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]


def find_program():
    named = os.environ.get("PACKRAT_CHROMIUM")
    for name in [named] if named else PROGRAMS:
        if program := shutil.which(name):
            return program
    sys.exit("no Chromium: set PACKRAT_CHROMIUM, or install Debian's package chromium-headless-shell")


class Browser:
    """The browser, with a profile's folder and more options; it is spoken to over a pair of pipes."""

    def __init__(self, profile, *more):
        theirs_in, self.output = os.pipe()
        self.input, theirs_out = os.pipe()
        # The browser reads from descriptor 3 and writes to descriptor 4. It ends when 3 is closed.
        shell = ["sh", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "sh", find_program(), "--headless", "--remote-debugging-pipe"]
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run",
                   "--no-proxy-server", "--disable-dev-shm-usage", f"--user-data-dir={profile}", *more, "about:blank"]
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

    def open(self, url, within):
        """A page in a profile of its own: no cache, and no connection of another one."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable", session)
        answer = self.ask("Page.navigate", session, within, url=url)
        if answer.get("errorText"):
            sys.exit(f"the page cannot be loaded: {answer['errorText']}")
        return context, session

    def end(self):
        """It ends with its input, and so do its own processes, which still write to the profile."""
        os.close(self.output)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


