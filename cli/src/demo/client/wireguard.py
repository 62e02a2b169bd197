"""A WireGuard tunnel between two programs in user space (wireguard-go, unmodified), and a download over the kernel's TCP inside it.

    serve PROGRAM KEYS PORT FILES READY        the sender's end, a web server inside the tunnel
    get   PROGRAM KEYS ADDRESS FILE SECONDS    the receiver's end, and the download

WireGuard's datagrams leave and arrive outside; the tunnel's inner side is in a network namespace of its own, which ends with the process.
"""

import ctypes
import functools
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

SERVER, CLIENT, PORT = "10.89.0.1", "10.89.0.2", 80
#: The demo's servers are loss-based; the system's choice may be another one.
CONGESTION_CONTROL = b"cubic"
NEW_NETWORK, NEW_MOUNTS, SLAVES_OF_ALL, END_WITH_PARENT = 0x40000000, 0x20000, 1 << 19 | 1 << 14, 1
#: Folder of the program's control socket, which it leaves behind when it is killed.
SOCKETS = "/var/run/wireguard"
READY_WITHIN = 10
libc = ctypes.CDLL(None, use_errno=True)


def run(*command):
    subprocess.run(command, check=True)


def start_tunnel(program, end, settings):
    """Starts the program outside, moves its device into a new network namespace, and enters that."""
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        sys.exit("a WireGuard tunnel needs root and /dev/net/tun")
    os.makedirs(SOCKETS, exist_ok=True)
    # A file system that ends with this process and the program.
    if libc.unshare(NEW_MOUNTS) or libc.mount(None, b"/", None, SLAVES_OF_ALL, None) or libc.mount(b"tmpfs", SOCKETS.encode(), b"tmpfs", 0, None):
        sys.exit(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    device = f"prk{os.getpid()}{end[0]}"
    environment = {**os.environ, "LOG_LEVEL": "error"}
    end_with_parent = functools.partial(libc.prctl, END_WITH_PARENT, signal.SIGKILL)
    tunnel = subprocess.Popen([program, "-f", device], stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.DEVNULL,
                              env=environment, preexec_fn=end_with_parent)
    control = f"{SOCKETS}/{device}.sock"
    until = time.monotonic() + READY_WITHIN
    while not os.path.exists(control):
        if tunnel.poll() is not None or time.monotonic() > until:
            sys.exit(f"{program} has not made {control}: status {tunnel.poll()}")
        time.sleep(0.02)
    with socket.socket(socket.AF_UNIX) as settings_socket:
        settings_socket.connect(control)
        settings_socket.sendall(("set=1\n" + "".join(f"{key}={value}\n" for key, value in settings) + "\n").encode())
        answer = settings_socket.recv(4096).decode()
    if "errno=0" not in answer:
        sys.exit(f"{program} refuses its settings: {answer.strip()}")
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    if libc.unshare(NEW_NETWORK) != 0:
        sys.exit(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    pid = os.getpid()
    run("nsenter", f"--net=/proc/{pid}/fd/{outside}", "ip", "link", "set", device, "netns", str(pid))
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{SERVER if end == 'serve' else CLIENT}/24", "dev", device)
    run("ip", "link", "set", device, "up")
    return tunnel


def new_keys():
    pair = X25519PrivateKey.generate()
    return {"private": pair.private_bytes_raw().hex(), "public": pair.public_key().public_bytes_raw().hex()}


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve(program, keys, port, files, ready):
    pairs = {"serve": new_keys(), "get": new_keys()}
    with open(os.open(keys, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(pairs, file)
    start_tunnel(program, "serve", [("private_key", pairs["serve"]["private"]), ("listen_port", port),
                                    ("public_key", pairs["get"]["public"]), ("allowed_ip", f"{CLIENT}/32")])
    server = http.server.ThreadingHTTPServer((SERVER, PORT), functools.partial(Files, directory=files))
    server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_CONTROL)
    pathlib.Path(ready).touch()
    server.serve_forever()


def get(program, keys, address, file, patience):
    pairs = json.loads(pathlib.Path(keys).read_text())
    tunnel = start_tunnel(program, "get", [("private_key", pairs["get"]["private"]), ("public_key", pairs["serve"]["public"]),
                                           ("endpoint", address), ("allowed_ip", f"{SERVER}/32")])
    until = time.monotonic() + float(patience)
    begun = time.monotonic()
    sum, count, status, partial, shown = hashlib.sha256(), 0, 0, False, begun
    try:
        connection = http.client.HTTPConnection(SERVER, PORT, timeout=max(1, until - begun))
        connection.request("GET", "/" + file)
        answer = connection.getresponse()
        status = answer.status
        while True:
            connection.sock and connection.sock.settimeout(max(0.1, until - time.monotonic()))
            chunk = answer.read1(1 << 16)
            if not chunk:
                partial = bool(answer.length)
                break
            sum.update(chunk)
            count += len(chunk)
            if time.monotonic() > until:
                raise TimeoutError
            if time.monotonic() - shown > 0.1:
                shown = time.monotonic()
                print(json.dumps({"bytes": count}), flush=True)
    except TimeoutError:
        partial = True
    seconds = time.monotonic() - begun
    print(json.dumps({"bytes": count, "sha256": sum.hexdigest(), "seconds": seconds, "status": status, "partial": partial}), flush=True)
    tunnel.kill()
    tunnel.wait()


{"serve": serve, "get": get}[sys.argv[1]](*sys.argv[2:])
