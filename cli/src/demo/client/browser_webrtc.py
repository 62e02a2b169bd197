"""Two pages of Chromium in a call through a media server: one sends video to the server, the other receives it over the demo's network.

    READY ADDRESS TURN FRAMES    READY: the file with the server's ports; ADDRESS: the server's for the receiver; TURN: the agent's, or -

Each frame shows its number. browser.py stands before this script.
"""

import pathlib

ready, address, turn, frames = sys.argv[1:]
LONGEST_LOAD, LONGEST_START, LONGEST_SILENCE = 30, 60, 5
CALL = """
const WIDTH = 320, HEIGHT = 240, RATE = 30, BLOCK = 16, BITS = WIDTH / BLOCK;
const now = () => performance.timeOrigin + performance.now();
window.call = {drawn: {}, shown: [], state: 'new'};

async function negotiate(peer, path) {
    peer.onconnectionstatechange = () => call.state = peer.connectionState;
    await peer.setLocalDescription(await peer.createOffer());
    while (peer.iceGatheringState !== 'complete') await new Promise(done => setTimeout(done, 20));
    const answer = await fetch(path, {method: 'POST', body: peer.localDescription.sdp});
    const sdp = await answer.text();
    if (!answer.ok) throw new Error(sdp);
    await peer.setRemoteDescription({type: 'answer', sdp});
    window.peer = peer;
}

async function publish() {
    const canvas = new OffscreenCanvas(WIDTH, HEIGHT), context = canvas.getContext('2d');
    const generator = new MediaStreamTrackGenerator({kind: 'video'}), writer = generator.writable.getWriter();
    const begun = now();
    let number = 0;
    const draw = () => {
        context.fillStyle = '#345';
        context.fillRect(0, 0, WIDTH, HEIGHT);
        for (let bit = 0; bit < BITS; bit++) {
            context.fillStyle = number >> bit & 1 ? '#fff' : '#000';
            context.fillRect(bit * BLOCK, 0, BLOCK, BLOCK);
        }
        context.fillStyle = '#c84';
        for (let disc = 0; disc < 12; disc++) {
            context.beginPath();
            context.arc((number * (disc + 1) + disc * 97) % WIDTH, 40 + disc * 16, 12, 0, 7);
            context.fill();
        }
        call.drawn[number] = now();
        const frame = new VideoFrame(canvas, {timestamp: number * 1e6 / RATE});
        writer.write(frame).catch(() => 0);
        number += 1;
        setTimeout(draw, Math.max(0, begun + number * 1000 / RATE - now()));
    };
    draw();
    const peer = new RTCPeerConnection();
    peer.addTransceiver(generator, {direction: 'sendonly'});
    await negotiate(peer, '/publish');
}

async function subscribe(address, turn) {
    const servers = turn ? [{urls: `turn:${turn}?transport=udp`, username: 'demo', credential: 'demo'}] : [];
    const peer = new RTCPeerConnection({iceServers: servers, iceTransportPolicy: turn ? 'relay' : 'all'});
    peer.addTransceiver('video', {direction: 'recvonly'});
    peer.ontrack = async ({track}) => {
        const context = new OffscreenCanvas(WIDTH, BLOCK).getContext('2d', {willReadFrequently: true});
        const reader = new MediaStreamTrackProcessor({track}).readable.getReader();
        for (;;) {
            const {done, value: frame} = await reader.read();
            if (done) break;
            const at = now();
            context.drawImage(frame, 0, 0, WIDTH, HEIGHT);
            frame.close();
            const {data} = context.getImageData(0, BLOCK / 2, WIDTH, 1);
            let number = 0;
            for (let bit = 0; bit < BITS; bit++) number |= (data[(bit * BLOCK + BLOCK / 2) * 4] > 127) << bit;
            call.shown.push([number, at]);
        }
    };
    await negotiate(peer, '/subscribe?at=' + address);
}

async function statistics() {
    for (const one of (await peer.getStats()).values())
        if (one.type === 'inbound-rtp') return one;
}
"""
COUNTED = ["framesDecoded", "framesDropped", "freezeCount", "totalFreezesDuration", "packetsReceived", "packetsLost", "nackCount", "pliCount",
           "jitterBufferDelay", "jitterBufferEmittedCount"]


def wait_for(browser, session, state):
    until = time.monotonic() + LONGEST_START
    while browser.evaluate(session, "call.state") != state:
        if time.monotonic() > until:
            sys.exit(f"the call is {browser.evaluate(session, 'call.state')!r}, not {state!r}")
        time.sleep(0.05)


def receive(browser, receiver):
    """The numbers of the frames that were shown, each with its time."""
    shown, silent_since = [], time.monotonic()
    while not shown or shown[-1][0] - shown[0][0] < int(frames):
        time.sleep(0.25)
        more = browser.evaluate(receiver, f"call.shown.slice({len(shown)})")
        shown += more
        silent_since = time.monotonic() if more else silent_since
        if time.monotonic() - silent_since > (LONGEST_SILENCE if shown else LONGEST_START):
            break
        print(json.dumps({"bytes": len(shown)}), flush=True)
    return shown


def main(profile):
    browser = Browser(profile, "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
                      "--disable-backgrounding-occluded-windows")
    try:
        _, pages = pathlib.Path(ready).read_text().split()
        opened = [browser.open(f"http://127.0.0.1:{pages}/", LONGEST_LOAD)[1] for _ in range(2)]
        for page in opened:
            browser.evaluate(page, CALL)
        sender, receiver = opened
        browser.evaluate(sender, "publish()")
        wait_for(browser, sender, "connected")
        begun = time.monotonic()
        there = json.dumps(None if turn == "-" else turn)
        # The server knows the track as soon as its first packet is there.
        browser.evaluate(receiver, f"(async () => {{ for (let left = 100; ; left--) try {{ return await subscribe({json.dumps(address)}, {there}); }}"
                                   " catch (error) { if (!left) throw error; await new Promise(done => setTimeout(done, 50)); } })()", LONGEST_START)
        wait_for(browser, receiver, "connected")
        shown = receive(browser, receiver)
        seconds = time.monotonic() - begun
        drawn = browser.evaluate(sender, "call.drawn")
        statistics = browser.evaluate(receiver, "statistics()")
    finally:
        browser.end()
    # The encoder's blocks may blur a number.
    right = {number: at - drawn[str(number)] for number, at in shown if str(number) in drawn and shown[0][0] <= number <= shown[-1][0]}
    first = shown[0][0] if shown else 0
    times = [delay for number, delay in right.items() if number - first < int(frames)]
    print(json.dumps({name: statistics.get(name) for name in COUNTED}), file=sys.stderr)
    print(json.dumps({"bytes": statistics["bytesReceived"], "seconds": seconds, "status": 200, "attempted": int(frames),
                      "wrong": len(shown) - len(right), "freezes": statistics["freezeCount"], "times_ms": times}), flush=True)


with tempfile.TemporaryDirectory(prefix="packrat-chromium-", ignore_cleanup_errors=True) as profile:
    main(profile)
