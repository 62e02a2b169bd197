"""A WebRTC peer (aiortc, unmodified) that sends video, and one that receives it.

    send    OFFER ANSWER READY            the sender; writes its port to READY
    receive OFFER ANSWER ADDRESS FRAMES   the receiver, which reaches the sender at ADDRESS only

The peers exchange their descriptions in files. Each frame shows its number, and a pattern that follows from it: the receiver compares what
it has decoded with that.
"""

import asyncio
import json
import os
import pathlib
import sys
import time

import aioice.ice
from aiortc import MediaStreamError, RTCPeerConnection, RTCSessionDescription, VideoStreamTrack
from av import VideoFrame

WIDTH, HEIGHT, BLOCK, RATE = 320, 240, 16, 30
COLUMNS, ROWS = WIDTH // BLOCK, HEIGHT // BLOCK
#: The first row of blocks is the number, in black and white.
NUMBER_BITS = COLUMNS
#: Greatest distance of a decoded block's mean from the drawn one's: the codec loses details.
TOLERANCE = 30
#: Share of a frame's blocks that must be right.
RIGHT_SHARE = 0.97
#: Frames after which a block has another brightness.
CHANGE = 15
READY_WITHIN, LONGEST_SILENCE = 20, 3
# The library leaves the loopback address out, but the demo's network is there.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


def brightness(number, block):
    step = (number + block * 7) // CHANGE * 2654435761 + block * 40503 & 0xFFFFFFFF
    return 50 + (step >> 13) % 150


def draw(number):
    """The brightness of each block."""
    bits = [220 if number >> bit & 1 else 30 for bit in range(NUMBER_BITS)]
    return bits + [brightness(number, block) for block in range(COLUMNS, COLUMNS * ROWS)]


class Pattern(VideoStreamTrack):
    """Frames with their numbers; `begun` is the time of the first one."""

    def __init__(self, begun):
        super().__init__()
        self.begun = begun

    async def recv(self):
        pts, time_base = await self.next_timestamp()
        number = round(pts * time_base * RATE)
        if number == 0:
            self.begun(time.time())
        frame = VideoFrame(width=WIDTH, height=HEIGHT, format="yuv420p")
        blocks = draw(number)
        rows = []
        for row in range(ROWS):
            line = b"".join(bytes([value]) * BLOCK for value in blocks[row * COLUMNS:(row + 1) * COLUMNS])
            rows.append(line.ljust(frame.planes[0].line_size, b"\0") * BLOCK)
        frame.planes[0].update(b"".join(rows))
        for plane in frame.planes[1:]:
            plane.update(bytes([128]) * plane.buffer_size)
        frame.pts, frame.time_base = pts, time_base
        return frame


def read(frame):
    """The number of a decoded frame, and the share of its blocks that are as drawn."""
    frame = frame.reformat(format="yuv420p")
    plane, line = bytes(frame.planes[0]), frame.planes[0].line_size
    means = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            spots = [plane[(row * BLOCK + y) * line + column * BLOCK + x] for y in (4, 8, 11) for x in (4, 8, 11)]
            means.append(sum(spots) / len(spots))
    number = sum(1 << bit for bit in range(NUMBER_BITS) if means[bit] > 125)
    right = sum(abs(mean - drawn) <= TOLERANCE for mean, drawn in zip(means, draw(number)))
    return number, right / len(means)


def write(path, text):
    """Writes a file that is whole as soon as it is there."""
    whole = pathlib.Path(path + ".new")
    whole.write_text(text)
    whole.rename(path)


def with_candidates(description, candidates):
    """The description with these candidates in the place of its own."""
    lines = [line for line in description.sdp.splitlines() if not line.startswith(("a=candidate", "a=end-of-candidates"))]
    media = next(index for index, line in enumerate(lines) if line.startswith("m="))
    lines[media + 1:media + 1] = candidates + ["a=end-of-candidates"]
    return RTCSessionDescription(sdp="\r\n".join(lines) + "\r\n", type=description.type)


def candidate(host, port):
    return f"a=candidate:1 1 udp 2130706431 {host} {port} typ host"


async def send(offer, answer, ready):
    peer = RTCPeerConnection()
    peer.addTrack(Pattern(lambda begun: write(offer + ".begun", str(begun))))
    await peer.setLocalDescription(await peer.createOffer())
    (port,) = {line.split()[5] for line in peer.localDescription.sdp.splitlines() if line.startswith("a=candidate")}
    write(offer, json.dumps({"sdp": peer.localDescription.sdp, "type": peer.localDescription.type}))
    write(ready, port)
    while not os.path.exists(answer):
        await asyncio.sleep(0.02)
    description = RTCSessionDescription(**json.loads(pathlib.Path(answer).read_text()))
    # The receiver's own address leads past the network of the demo. The sender finds it by the receiver's checks, which come from there; an
    # unused port (discard) keeps it waiting for them.
    await peer.setRemoteDescription(with_candidates(description, [candidate("127.0.0.1", 9)]))
    await asyncio.Event().wait()


async def receive(offer, answer, address, frames):
    peer = RTCPeerConnection()
    tracks = asyncio.Queue()
    peer.on("track", tracks.put_nowait)
    description = RTCSessionDescription(**json.loads(pathlib.Path(offer).read_text()))
    await peer.setRemoteDescription(with_candidates(description, [candidate(*address.rsplit(":", 1))]))
    await peer.setLocalDescription(await peer.createAnswer())
    write(answer, json.dumps({"sdp": peer.localDescription.sdp, "type": peer.localDescription.type}))
    track = await asyncio.wait_for(tracks.get(), READY_WITHIN)
    begun, right, wrong, first, wait = None, {}, 0, None, READY_WITHIN
    while True:
        try:
            frame = await asyncio.wait_for(track.recv(), wait)
        except (asyncio.TimeoutError, MediaStreamError):
            break
        now, wait = time.time(), LONGEST_SILENCE
        begun = begun or float(pathlib.Path(offer + ".begun").read_text())
        number, share = read(frame)
        first = number if first is None else first
        if number - first >= int(frames):
            break
        if share >= RIGHT_SHARE:
            right[number] = (now - begun - number / RATE) * 1000
        else:
            wrong += 1
        print(json.dumps({"bytes": len(right)}), flush=True)
    statistics = (await peer.getStats()).values()
    count = sum(one.bytesReceived for one in statistics if one.type == "transport")
    print(json.dumps({"bytes": count, "seconds": time.time() - begun if begun else 0, "status": 200, "attempted": int(frames),
                      "wrong": wrong, "times_ms": list(right.values())}), flush=True)
    await peer.close()


asyncio.run({"send": send, "receive": receive}[sys.argv[1]](*sys.argv[2:]))
