"""The golden vectors of protocol/vectors, with the code of this folder. Ends with 0 when all agree."""

import hashlib
import hmac
import json
import pathlib
import re

import client
import coded_repair
import noise
import sketch
import wire

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "vectors"
unhex = bytes.fromhex
checked = 0


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def equal(made, expected, what):
    global checked
    checked += 1
    assert made == expected, f"{what}:\n  made     {made}\n  expected {expected}"


def control():
    for case in load("control"):
        name, get = case["name"], lambda field: unhex(case.get(field, ""))
        kind, fields = wire.parse_control(get("datagram"))
        nonce = get("nonce")
        made = {
            wire.DISCOVER: lambda: wire.discover(nonce, case["versions"], get("noise")),
            wire.OFFER: lambda: wire.offer(nonce, case["version"], case["cookie_time"], get("cookie")),
            wire.INIT: lambda: wire.init(nonce, case["cookie_time"], get("cookie"), get("noise")),
            wire.INIT_ACK: lambda: wire.init_ack(nonce, get("noise")),
            wire.REFUSAL: lambda: wire.refusal(nonce, case["reason"], case["versions"]),
            wire.SEALED: lambda: wire.sealed(case["session"], case["counter"], get("ciphertext")),
        }[kind]()
        equal(made, get("datagram"), name)
        for field, value in fields.items():
            expected = unhex(case.get(field, "")) if isinstance(value, bytes) else case[field]
            equal(value, expected, f"{name}: {field}")


def messages():
    for case in load("messages"):
        name, plaintext = case["name"], unhex(case["plaintext"])
        if name.startswith("eack"):
            encoding = case["encoding"]["form"], case["encoding"]["count"]
            made = wire.eack(
                case["epoch"], encoding, unhex(case["prefix"]), case["echo"], case["holes"],
                case["newest"], case.get("newest_age_microseconds", 0), case["anchor"],
            )  # fmt: skip
            equal(made, plaintext, name)
            continue
        _, fields = wire.parse_message(plaintext)
        for field in ["epoch", "reason", "echo", "missing", "loss"]:
            if field in case:
                equal(fields[field], case[field], f"{name}: {field}")
        if name.startswith("report"):
            wanted = case["wanted"] or {"form": 0, "count": 0}
            equal({"form": fields["form"], "count": fields["count"]}, wanted, name)
            equal(fields["settled"], case["settled"] or 0, name)
            equal(fields["round_trip"], case["round_trip_microseconds"], name)
            equal(fields["echo_age"] * 16, case["echo_age_microseconds"], name)
            equal(list(fields.values())[10:], case["totals"], name)
        if "data" in case:
            equal(fields["data"], unhex(case["data"]), name)
        if name == "baseline":
            equal(fields["set"], unhex(case["set"]), name)
        if name == "recovered":
            equal(fields["total"], case["total"], name)
        if name.startswith("holes"):
            runs = [(run["first"], run["count"]) for run in case["runs"]]
            equal(fields["runs"], runs, name)
            equal([fields["wanted"], fields["expected"]], [int(case["wanted"]), case["expected"]], name)
            equal(fields["age"] * 16, case["age_microseconds"], name)
        if name == "coded":
            equal(fields["half"], int(case["half"] == "second"), name)
            equal(fields["symbol"], unhex(case["symbol"]), name)
            equal([fields[at] for at in ("first", "count", "step", "seed")],
                  [case[at] for at in ("first", "count", "step", "seed")], name)  # fmt: skip
        if name == "group_coded":
            equal(fields["half"], int(case["half"] == "second"), name)
            equal(fields["symbol"], unhex(case["symbol"]), name)
            equal([fields[at] for at in ("first", "count", "seed", "names")],
                  [case[at] for at in ("first", "count", "seed", "names")], name)  # fmt: skip


def handshake():
    case = load("handshake")
    nonce, params = unhex(case["nonce"]), case["client_params"]
    prologue = wire.prologue(nonce)
    equal(prologue, unhex(case["prologue"]), "prologue")
    message = unhex(case["noise_message_1"])
    payload = wire.client_params(
        params["versions"], params["scheme"], params["power_sums"],
        params["maximum_hold_microseconds"], unhex(params["token"]), params["coded_symbols"],
    )  # fmt: skip
    # Only meaningless bytes follow.
    equal(message[32 : 32 + len(payload)], payload, "client params")
    behind = wire.records(message[32 + len(payload) :])
    equal([kind for kind in behind if not 192 <= kind < 224], [], "records that mean nothing")
    ephemeral = unhex(case["client_ephemeral_private_key"])
    initiator = noise.Initiator(prologue, message[32:], ephemeral)
    equal(initiator.message, message, "message 1")
    answer = unhex(case["noise_message_2"])
    payload, static, keys = initiator.finish(answer)
    equal(static, unhex(case["gateway_static_public_key"]), "the gateway's key")
    agreed = wire.gateway_params(payload)
    for field, expected in case["gateway_params"].items():
        equal(agreed[field], unhex(expected) if field == "secret" else expected, field)
    equal(wire.names(agreed), case["names"], "names")
    secrets = [unhex(case[f"gateway_{name}_private_key"]) for name in ("static", "ephemeral")]
    made = noise.respond(prologue, message, payload, *secrets)
    equal(made, (answer, keys), "message 2")
    sides = {"client to gateway": keys[0], "gateway to client": keys[1]}
    sealing, opening = ({side: wire.Direction(key) for side, key in sides.items()} for _ in "ab")
    for sent in case["messages"]:
        side, plaintext, datagram = sent["direction"], unhex(sent["plaintext"]), unhex(sent["datagram"])
        equal(opening[side].open(datagram), (sent["counter"], plaintext), "opened")
        equal(sealing[side].seal(agreed["session"], plaintext), datagram, "sealed")
    return agreed


def live():
    case = load("live")
    found = wire.records(unhex(case["noise_message_1"])[32 + 8 :])
    params = case["client_params"]
    flags = params["selective"] | params["subscribe"] << 1
    expected = bytes([flags]) + b"".join(
        params[f"{name}_microseconds"].to_bytes(4, "big") for name in ("window", "tolerance")
    )
    equal(found[wire.LIVE], expected, "live")
    secret = unhex(case["gateway_params"]["stream_secret"])
    key = sketch.derive(secret, b"packrat/2 identifier")[:3]
    equal(sketch.identifier(key, 1, unhex(case["datagram"])), case["identifier"], "of a stream")
    case = case["symbols"]
    words = sketch.derive(unhex(case["secret"]), b"packrat/2 symbols key")
    key = b"".join(word.to_bytes(8, "big") for word in words)
    equal(key, unhex(case["key"]), "key of symbols")
    session = sketch.derive(key, b"packrat/2 symbols")[0] >> 32
    equal(session, case["session"], "session of symbols")
    direction, plaintext = wire.Direction(key), unhex(case["plaintext"])
    equal(direction.open(unhex(case["datagram"])), (0, plaintext), "a symbol")
    equal(wire.Direction(key).seal(session, plaintext), unhex(case["datagram"]), "a symbol, sealed")


def identifiers(agreed):
    case = load("identifiers")
    key = [int(word, 16) for word in case["key"]]
    for entry in case["identifiers"]:
        datagram = unhex(entry["datagram"])
        equal(sketch.identifier(key, sketch.TRAILER, datagram), entry["trailer"], entry["name"])
        equal(sketch.identifier(key, sketch.PAYLOAD, datagram), entry["payload"], entry["name"])
    case = case["of_the_session_in_handshake_json"]
    key = sketch.derive(agreed["secret"], b"packrat/2 identifier")[:3]
    equal(sketch.identifier(key, 1, unhex(case["datagram"])), case["trailer"], "of the session")


def numbers():
    case = load("numbers")
    found = wire.records(unhex(case["noise_message_1"])[32 + 8 :])
    wish = case["client_params"]
    equal(wire.record(wire.NUMBERS, found[wire.NUMBERS]), wire.numbers(wish["flags"], wish["largest"]), "wish")
    secret = unhex(case["gateway_params"]["secret"])
    identifier_key = sketch.derive(secret, b"packrat/2 identifier")[:3]
    number_key = sketch.derive(secret, b"packrat/2 number")[:2]
    upward_key = sketch.derive(secret, b"packrat/2 number up")[:2]
    for entry in case["datagrams"]:
        name, base, datagram = entry["name"], unhex(entry["base"]), unhex(entry["datagram"])
        value = sketch.identifier(identifier_key, sketch.TRAILER, base)
        equal(value, entry["identifier"], name)
        mask = sketch.mask(number_key, value)
        equal(wire.numbered((entry["place"] + mask) % 2**24, base), datagram, name)
        number, behind = wire.split_number(datagram)
        equal(((number - mask) % 2**24, behind), (entry["place"] % 2**24, base), name)
        mask = sketch.mask(upward_key, value)
        upward = unhex(entry["datagram_towards_the_server"])
        equal(wire.numbered((entry["place"] + mask) % 2**24, base), upward, name)


def sketches(agreed):
    def prefix(key, values, form, count):
        if form == sketch.CODED_SYMBOLS:
            return sketch.coded_symbols(key, values, count)
        sums = sketch.PowerSums(count)
        for value in values:
            sums.insert(value)
        return sums.prefix(count)

    case = load("sketches")
    for entry in case["sketches"]:
        key = [int(word, 16) for word in entry["key"]]
        for made in entry["prefixes"]:
            form, count = made["form"], made["count"]
            equal(prefix(key, entry["identifiers"], form, count), unhex(made["prefix"]), entry["name"])
    case = case["of_the_session_in_handshake_json"]
    key = sketch.derive(agreed["secret"], b"packrat/2 sketch")[:2]
    made = prefix(key, case["identifiers"], case["form"], case["count"])
    equal(made, unhex(case["prefix"]), "of the session")


def code():
    def content(place, length):
        return bytes((57 * place + 31 * at + at // 32) % 256 for at in range(length))

    def places(case, first):
        return [first + at * case["step"] for at in range(case["count"])]

    case = load("code")
    for left, right, expected in case["products"]:
        equal(coded_repair.product(left, right), expected, "product")
    for entry in case["coefficients"]:
        made = bytes(coded_repair.coefficient(entry["seed"], at) for at in places(entry, entry["first"]))
        equal(made, unhex(entry["coefficients"]), f"coefficients of seed {entry['seed']}")
    for flow in case["flows"]:
        decoder, first = coded_repair.Decoder(), flow["first_place"]
        datagrams = {first + at: content(first + at, length) for at, length in enumerate(flow["lengths"])}
        for place in datagrams:
            if place not in flow["lost"]:
                decoder.on_datagram(place, datagrams[place])
        for message in flow["messages"]:
            _, fields = wire.parse_message(unhex(message["plaintext"]))
            start = coded_repair.first_place(fields["first"], max(datagrams))
            equal(start, message["first"], flow["name"])
            found = decoder.on_repair(fields["half"], places(fields, start), fields["seed"], fields["symbol"])
            equal(found, message["recovered"], flow["name"])
            equal([decoder.datagrams[at] for at in found], [datagrams[at] for at in found], flow["name"])


def attempts():
    """The delays between attempts agree with the page, and a client of the holdout has the longest."""
    page = (FOLDER.parent.parent / "docs" / "PROTOCOL.md").read_text()
    for name in ["BETWEEN_ATTEMPTS", "FULL_RETRY", "TOKEN_RETRY", "HOLDOUT_RETRY"]:
        (seconds,) = re.findall(rf"^- \[`{name}`\]\([^)]+\) (\d+) s: ", page, re.M)
        equal(getattr(client, name), int(seconds), name)
    equal(client.next_attempt(None), 30, "no answer")
    equal(client.next_attempt(2), 30, "switched off")
    equal(client.next_attempt(wire.REFUSED_TOKEN), 300, "no token")
    equal(client.next_attempt(wire.REFUSED_HOLDOUT), 3600, "held out")
    equal([client.next_attempt(wire.REFUSED_FULL, full, 0.0) for full in (0, 1, 9)], [0.5, 1, 15], "no room")


def peers():
    """Messages between gateways, of which a client knows the outer layout only."""
    vectors = load("peers")
    extracted = hmac.digest(bytes(32), unhex(vectors["secret"]), "sha256")
    key = hmac.digest(extracted, b"packrat/2 peer\x01", "sha256")
    for case in vectors["messages"]:
        fields = unhex(case["nonce"]) + case["session"].to_bytes(4, "big")
        body = b"\x0bPkr\x26" + bytes([case["kind"]]) + fields
        equal(body + hashlib.sha256(key + body).digest()[:16], unhex(case["datagram"]), case["name"])


attempts()
control()
messages()
code()
of_the_session = handshake()
live()
identifiers(of_the_session)
numbers()
peers()
sketches(of_the_session)
print(f"{checked} values agree with protocol/vectors")
