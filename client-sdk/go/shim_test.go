package packrat

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/flynn/noise"
)

const genuine = "genuine datagram "

// world is a client, a gateway and the network between them in virtual time. The gateway repairs by the datagrams
// that have really arrived, and the test compares each eACK with them.
type world struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	events eventQueue

	loss, duplicates float64
	jitter           time.Duration
	forged           bool // an attacker's datagrams are in between: sets are not compared then

	shim    *Shim[int]
	witness opener // of the client's sealed messages, at the moment of sending
	set     map[identifier]bool
	known   map[identifier]bool
	epoch   uint16

	gateway gateway
	sealed  [][]byte // datagrams that the client has sealed

	arrivals, deliveries map[int]int
	arrivedAt            map[int]time.Time
	highest, overtaken   int
	longestWait          time.Duration
	eacks                int
	// Acknowledgements of the transport that the gateway has got, in their order, and all datagrams that leave.
	acknowledged [][]byte
	sent         int
}

type event struct {
	at    time.Time
	order int
	run   func()
}

// eventQueue is a heap of future events.
type eventQueue struct {
	heap  []event
	count int
}

func (q *eventQueue) Len() int { return len(q.heap) }
func (q *eventQueue) Less(a, b int) bool {
	if q.heap[a].at.Equal(q.heap[b].at) {
		return q.heap[a].order < q.heap[b].order
	}
	return q.heap[a].at.Before(q.heap[b].at)
}
func (q *eventQueue) Swap(a, b int) { q.heap[a], q.heap[b] = q.heap[b], q.heap[a] }
func (q *eventQueue) Push(e any)    { q.heap = append(q.heap, e.(event)) }
func (q *eventQueue) Pop() any {
	last := q.heap[len(q.heap)-1]
	q.heap = q.heap[:len(q.heap)-1]
	return last
}

// gateway answers handshakes, numbers datagrams, and repairs missing ones.
type gateway struct {
	gone, withCookie, withoutNumbers, withoutBundles, isOld, silent, stingy bool

	ticket []byte   // of the next session; nil: no ticket
	shown  [][]byte // tickets with which sessions were asked for

	static  noise.DHKey
	nonce   uint64
	answer  []byte
	key     identifierKey
	numbers numberKey
	opens   opener
	seals   sealer
	heard   bool // a sealed message: it may number
	epoch   uint16
	places  []forwarded
	up      upwards
}

type forwarded struct {
	index  int
	value  identifier
	last   time.Time
	repair int
}

func begun() time.Time { return time.Unix(1000, 0) }

func newWorld(t *testing.T, seed uint64, settings Settings) *world {
	t.Helper()
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 7)), now: begun(), known: map[identifier]bool{},
		arrivals: map[int]int{}, deliveries: map[int]int{}, arrivedAt: map[int]time.Time{}, highest: -1}
	static, err := noise.DH25519.GenerateKeypair(bytes.NewReader(bytes.Repeat([]byte{byte(seed), 3}, 16)))
	if err != nil {
		t.Fatal(err)
	}
	w.gateway.static = static
	shim, err := NewShim[int](settings, [32]byte{byte(seed), byte(seed >> 8)}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	w.shim = shim
	w.drain()
	return w
}

func (w *world) after(delay time.Duration, run func()) {
	w.events.count++
	heap.Push(&w.events, event{w.now.Add(delay), w.events.count, run})
}

// run lets time pass.
func (w *world) run(length time.Duration) {
	until := w.now.Add(length)
	for {
		next := until
		if w.events.Len() > 0 && w.events.heap[0].at.Before(next) {
			next = w.events.heap[0].at
		}
		if due := w.shim.Timeout(); !due.IsZero() && due.Before(next) {
			w.now = later(w.now, due)
			w.shim.HandleTimeout(w.now)
			w.drain()
			if w.shim.Timeout().Equal(due) && !due.After(w.now) {
				w.t.Fatalf("the timeout of %v stays", due.Sub(begun()))
			}
			continue
		}
		w.now = next
		if !next.Before(until) {
			return
		}
		heap.Pop(&w.events).(event).run()
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// drain takes all messages of the shim.
func (w *world) drain() {
	for {
		payload, _, ok := w.shim.Deliver()
		if !ok {
			break
		}
		w.deliver(payload)
	}
	for range 1000 {
		datagram := w.shim.Transmit(w.now)
		if datagram == nil {
			return
		}
		w.check(datagram)
		w.sent++
		w.travel(func() { w.toGateway(datagram) })
	}
	w.t.Fatal("a thousand control datagrams at once")
}

// travel carries something over the last mile, or loses it.
func (w *world) travel(arrive func()) {
	if w.random.Float64() < w.loss {
		return
	}
	delay := 5*time.Millisecond + time.Duration(w.random.Int64N(int64(w.jitter)+1))
	w.after(delay, arrive)
	if w.random.Float64() < w.duplicates {
		w.after(delay+3*time.Millisecond, arrive)
	}
}

func (w *world) toClient(datagram []byte) {
	w.travel(func() { w.receive(datagram) })
}

func indexOf(payload []byte) (int, bool) {
	if !bytes.HasPrefix(payload, []byte(genuine)) {
		return 0, false
	}
	return int(binary.BigEndian.Uint32(payload[len(genuine):])), true
}

func (w *world) receive(datagram []byte) {
	base := datagram
	if _, inner, ok := splitNumber(datagram); ok {
		base = inner
	}
	if index, ok := indexOf(base); ok {
		if w.arrivals[index]++; w.arrivals[index] == 1 {
			w.arrivedAt[index] = w.now
		}
		if session := w.shim.session; session != nil {
			value := session.key.identify(materialOf(session.scheme, base))
			if !w.known[value] && value != session.anchor {
				w.known[value], w.set[value] = true, true
			}
		}
	}
	before := bytes.Clone(datagram)
	payload, isNow := w.shim.Receive(datagram, 0, w.now)
	if !bytes.Equal(before, datagram) {
		w.t.Fatal("Receive changes the datagram")
	}
	if isNow {
		w.deliver(payload)
	}
	if session := w.shim.session; session != nil && session.epoch != w.epoch {
		w.epoch, w.set = session.epoch, map[identifier]bool{}
	}
	w.drain()
}

func (w *world) deliver(payload []byte) {
	index, ok := indexOf(payload)
	if !ok {
		if !w.forged {
			w.t.Fatalf("%x is delivered", payload)
		}
		return
	}
	w.deliveries[index]++
	if w.deliveries[index] > w.arrivals[index] {
		w.t.Fatalf("%d is delivered more often than it came", index)
	}
	if w.deliveries[index] == 1 {
		w.longestWait = max(w.longestWait, w.now.Sub(w.arrivedAt[index]))
		if index < w.highest {
			w.overtaken++
		}
		w.highest = max(w.highest, index)
	}
}

// check compares an eACK with the datagrams that have arrived.
func (w *world) check(datagram []byte) {
	if _, message, ok := splitBundle(datagram); ok {
		datagram = message
	}
	if c, err := decodeControl(datagram); err != nil || c.kind != typeSealed {
		return
	}
	w.sealed = append(w.sealed, datagram)
	plaintext, err := w.witness.open(datagram)
	if err != nil {
		w.t.Fatalf("the client seals what can't be opened: %v", err)
	}
	if plaintext[0] != messageEack {
		return
	}
	w.eacks++
	e := parseEack(w.t, plaintext)
	if session := w.shim.session; session != nil && (e.anchor != 0) != (session.anchor != 0 && !session.confirmed) {
		w.t.Fatalf("an eACK names the anchor %d", e.anchor)
	}
	if e.epoch != w.epoch || w.forged {
		return
	}
	expected := newPowerSums(int(e.count))
	for value := range w.set {
		expected.insert(value)
	}
	if !bytes.Equal(expected.prefix(int(e.count)), e.prefix) {
		w.t.Fatalf("an eACK names another set than the %d that have arrived", len(w.set))
	}
}

func parseEack(t testing.TB, plaintext []byte) (e eack) {
	r := reader{rest: plaintext}
	r.u8()
	e.epoch = r.u16()
	flags := r.u8()
	e.echo, e.holes = flags&1 != 0, int(r.u8())
	if flags&4 != 0 {
		e.newest = identifier(r.u32())
		r.u16()
	}
	if flags&2 != 0 {
		e.anchor = identifier(r.u32())
	}
	e.form, e.count = r.u8(), r.u8()
	e.prefix = r.take(2 + 4*int(e.count))
	if r.end() != nil || e.form != formPowerSums || e.count < 2 || e.count > ourPowerSums {
		t.Fatalf("malformed eACK %x", plaintext)
	}
	return e
}

func (w *world) toGateway(datagram []byte) {
	g := &w.gateway
	if masked, base, ok := splitNumber(datagram); ok {
		w.onUpward(masked, base)
		return
	}
	if datagrams, message, ok := splitBundle(datagram); ok {
		w.acknowledged = append(w.acknowledged, datagrams...)
		if len(message) > 0 {
			w.toGateway(message)
		}
		return
	}
	if suits(datagram) {
		w.acknowledged = append(w.acknowledged, datagram)
		return
	}
	c, err := decodeControl(datagram)
	if err != nil {
		w.t.Fatalf("the client sends %x: %v", datagram, err)
	}
	if g.gone {
		return
	}
	switch c.kind {
	case typeDiscover:
		if g.withCookie || len(c.noise) == 0 {
			w.toClient((&control{kind: typeOffer, nonce: c.nonce, version: version, cookieTime: 9, cookie: [16]byte{8}}).encode())
			return
		}
		w.answer(&c)
	case typeInit:
		if c.cookieTime != 9 || c.cookie != [16]byte{8} {
			w.t.Fatal("another cookie comes back")
		}
		w.answer(&c)
	case typeSealed:
		plaintext, err := g.opens.open(datagram)
		if err == nil {
			w.onMessage(plaintext)
		}
	}
}

func (w *world) answer(c *control) {
	g := &w.gateway
	if g.nonce != c.nonce {
		secret := [32]byte{byte(w.random.Uint32()), 5}
		var opening, sealing [32]byte
		g.answer, opening, sealing = respond(w.t, g.static, c.nonce, c.noise, func(params []byte) []byte {
			wish := findRecord(params[8+int(params[7]):], recordNumbered)
			if findRecord(params[8+int(params[7]):], recordVersions) == nil || wish == nil {
				w.t.Fatal("records are missing")
			}
			out := append([]byte{1, 2, 3, 4, params[0], 0, 64, 0, 1, 0, 0}, secret[:]...)
			out = appendRecord(out, 207, []byte("means nothing"))
			g.shown = append(g.shown, findRecord(params[8+int(params[7]):], recordTicket))
			if g.ticket != nil {
				out = appendRecord(out, recordTicket, g.ticket)
			}
			if !g.withoutBundles && findRecord(params[8+int(params[7]):], recordBundles) != nil {
				out = appendRecord(out, recordBundles, nil)
			}
			if g.withoutNumbers {
				return out
			}
			if !g.isOld {
				out = appendRecord(out, recordDistinct, nil)
			}
			return appendRecord(out, recordNumbered, []byte{wish[0] & (toClient | toServer), 5, 168})
		})
		one, _ := newDirection(opening)
		other, _ := newDirection(sealing)
		g.nonce, g.opens, g.seals, g.heard, g.epoch = c.nonce, opener{direction: one}, sealer{direction: other, session: 0x01020304}, false, 0
		w.witness = opener{direction: one}
		w.set, w.known, w.epoch = map[identifier]bool{}, map[identifier]bool{}, 0
		g.key, g.numbers, g.places = identifierKeyOf(secret), numberKeyOf(secret), nil
		g.up = upwards{key: upwardNumberKeyOf(secret)}
	}
	w.toClient((&control{kind: typeInitAck, nonce: c.nonce, noise: g.answer}).encode())
}

func (w *world) say(plaintext []byte) {
	datagram, _, err := w.gateway.seals.seal(plaintext)
	if err != nil {
		w.t.Fatal(err)
	}
	w.toClient(datagram)
}

func (w *world) onMessage(plaintext []byte) {
	g := &w.gateway
	g.heard = true
	if plaintext[0] != messageEack || g.silent {
		return
	}
	e := parseEack(w.t, plaintext)
	if e.epoch != g.epoch {
		if isNewer(e.epoch, g.epoch) {
			if !w.forged {
				w.t.Fatal("the client begins an epoch by itself")
			}
			g.epoch = e.epoch
			return
		}
		w.say(append(binary.BigEndian.AppendUint16([]byte{messageReset}, g.epoch), 1))
		return
	}
	newest := -1
	for place, f := range g.places {
		if f.value == e.newest {
			newest = place
		}
	}
	settled, isSettled := identifier(0), true
	for place := 0; place <= newest; place++ {
		f := &g.places[place]
		if w.arrivals[f.index] > 0 {
			if isSettled {
				settled = f.value
			}
			continue
		}
		if f.repair < 12 && !g.stingy {
			isSettled = false
			if f.repair == 0 || w.now.Sub(f.last) >= 15*time.Millisecond {
				f.repair++
				f.last = w.now
				w.toClient(w.gateway.number(place))
			}
		}
	}
	if g.stingy {
		settled = 0
	}
	if e.echo {
		w.say(w.report(settled))
	}
}

func (w *world) report(settled identifier) []byte {
	out := binary.BigEndian.AppendUint16([]byte{messageReport}, w.gateway.epoch)
	out = binary.BigEndian.AppendUint32(out, uint32(w.gateway.opens.expected-1))
	out = append(out, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(settled))
	return append(out, make([]byte, 49-len(out))...)
}

func datagramOf(index int) []byte {
	out := binary.BigEndian.AppendUint32([]byte(genuine), uint32(index))
	for len(out) < 80 {
		out = append(out, byte(index*len(out)+index>>8+1))
	}
	return out
}

// number is a datagram with the number of its place.
func (g *gateway) number(place int) []byte {
	f := g.places[place]
	masked := (uint32(place) + g.numbers.mask(f.value)) % numberModulus
	out := append(header(typeNumbered), byte(masked>>16), byte(masked>>8), byte(masked))
	return append(out, datagramOf(f.index)...)
}

// forward is the next datagram of the server.
func (w *world) forward(index int) {
	g := &w.gateway
	if g.gone || !g.heard || g.withoutNumbers {
		w.toClient(datagramOf(index))
		return
	}
	value := g.key.identify(materialOf(w.shim.params.scheme, datagramOf(index)))
	g.places = append(g.places, forwarded{index: index, value: value})
	w.toClient(g.number(len(g.places) - 1))
}

// download forwards datagrams, one in each interval, and lets everything come to rest.
func (w *world) download(from, count int, interval time.Duration) {
	for index := from; index < from+count; index++ {
		w.forward(index)
		w.run(interval)
	}
	w.run(2 * time.Second)
}

func (w *world) said() string {
	return fmt.Sprintf("%d overtaken, longest wait %v, %d eACKs, %+v", w.overtaken, w.longestWait, w.eacks, w.shim.Statistics())
}

// assertNothingIsLost fails the test unless every arrived datagram was delivered, within
// maximumHold.
func (w *world) assertNothingIsLost(maximumHold time.Duration) {
	w.t.Helper()
	var missing []int
	for index := range w.arrivals {
		if w.deliveries[index] == 0 {
			missing = append(missing, index)
		}
	}
	sort.Ints(missing)
	if len(missing) > 0 {
		w.t.Errorf("%v came and were not delivered: %s", missing, w.said())
	}
	if w.longestWait > maximumHold {
		w.t.Errorf("longer than %v: %s", maximumHold, w.said())
	}
}

const testHold = 400 * time.Millisecond

func settings() Settings { return Settings{Scheme: Trailer, MaximumHold: testHold} }

func TestInOrderOnceAndNeverLaterThanTheHold(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed, settings())
			w.loss = float64(seed%4) * 0.05
			w.jitter = time.Duration(seed%3) * 3 * time.Millisecond
			w.duplicates = float64(seed%5) * 0.02
			w.gateway.withCookie = seed%2 == 1
			w.run(300 * time.Millisecond)
			w.download(0, 600, time.Millisecond)
			w.assertNothingIsLost(testHold)
			figures := w.shim.Statistics()
			if figures.Condition != Assisted || figures.ControlDropped > 0 && w.duplicates == 0 {
				t.Errorf("not assisted: %s", w.said())
			}
			// Those before the numbers begin are in no order.
			if uint64(w.overtaken) > figures.RepairedLate+40 || w.loss == 0 && w.jitter == 0 && w.overtaken > 0 {
				t.Errorf("out of order: %s", w.said())
			}
			if w.loss > 0 && (figures.Holes < 10 || figures.RepairedInTime*10 < figures.Holes*9) {
				t.Errorf("not repaired in time: %s", w.said())
			}
			if w.eacks < 20 {
				t.Errorf("few eACKs: %s", w.said())
			}
		})
	}
}

func TestWhatIsNotRepairedIsWaitedForNoLongerThanTheHold(t *testing.T) {
	w := newWorld(t, 6, settings())
	w.run(200 * time.Millisecond)
	w.gateway.stingy = true
	w.download(0, 50, time.Millisecond)
	w.loss = 0.02
	w.download(50, 2000, 2*time.Millisecond)
	w.assertNothingIsLost(testHold)
	figures := w.shim.Statistics()
	// Three round trips and a margin: 130 ms and more.
	if figures.GivenUp < 10 || figures.RepairedInTime > 0 || w.longestWait < 100*time.Millisecond || w.overtaken > 0 {
		t.Errorf("not given up: %s", w.said())
	}
}

func TestTheSetBeginsBehindTheLastDatagramBeforeTheSession(t *testing.T) {
	w := newWorld(t, 7, settings())
	w.forward(0)
	w.run(100 * time.Millisecond)
	anchor := w.shim.session.anchor
	if anchor != w.gateway.key.identify(materialOf(Trailer, datagramOf(0))) {
		t.Fatalf("the anchor is %d", anchor)
	}
	w.toClient(datagramOf(0)) // again
	w.download(1, 50, time.Millisecond)
	w.assertNothingIsLost(testHold)
	if w.shim.session.set.size != 50 || !w.shim.session.confirmed {
		t.Errorf("%d are in the set", w.shim.session.set.size)
	}
}

func TestForgedDatagramsLoseNothingAndDelayNothingBeyondTheHold(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed, settings())
			w.forged = true
			w.loss, w.jitter = 0.04, 2*time.Millisecond
			for at := range 3000 {
				w.after(time.Duration(at)*time.Millisecond, w.forge)
			}
			w.run(300 * time.Millisecond)
			w.download(0, 1000, time.Millisecond)
			w.assertNothingIsLost(testHold)
			figures := w.shim.Statistics()
			if figures.Sessions == 0 || figures.ControlDropped == 0 {
				t.Errorf("no session, or nothing forged: %s", w.said())
			}
			if uint64(w.overtaken) > figures.RepairedLate+60 {
				t.Errorf("out of order: %s", w.said())
			}
		})
	}
}

// forge sends the client something of an attacker's.
func (w *world) forge() {
	noise := make([]byte, 20+w.random.IntN(40))
	for at := range noise {
		noise[at] = byte(w.random.Uint32())
	}
	switch w.random.IntN(6) {
	case 0:
		w.receive(noise)
	case 1: // a control datagram of any type
		w.receive(append([]byte(magic), noise...))
	case 2: // a number
		w.receive(append(header(typeNumbered), noise...))
	case 3: // a message of the client's own, changed
		if len(w.sealed) > 0 {
			seen := bytes.Clone(w.sealed[w.random.IntN(len(w.sealed))])
			seen[w.random.IntN(len(seen)-5)+5] ^= 1
			w.receive(seen)
		}
	case 4: // no such session
		if len(w.sealed) > 0 {
			seen := w.sealed[len(w.sealed)-1]
			w.receive((&control{kind: typeRefusal, nonce: binary.BigEndian.Uint64(seen[5:]), reason: refusedSession}).encode())
		}
	case 5: // an answer
		w.receive((&control{kind: typeInitAck, nonce: w.shim.discovery.initiator.nonce, noise: noise}).encode())
	}
}

func TestAGatewayThatIsGoneIsMissedAndItsSuccessorFound(t *testing.T) {
	w := newWorld(t, 1, settings())
	w.loss = 0.03
	w.run(200 * time.Millisecond)
	w.download(0, 300, time.Millisecond)
	before := w.shim.Statistics()
	w.gateway.gone = true
	w.download(300, 2000, 8*time.Millisecond)
	w.assertNothingIsLost(testHold)
	if after := w.shim.Statistics(); before.Condition != Assisted || after.Condition == Assisted {
		t.Fatalf("still assisted: %s", w.said())
	}
	w.gateway.gone = false
	w.run(3 * time.Second)
	w.download(20_000, 300, time.Millisecond)
	w.assertNothingIsLost(testHold)
	after := w.shim.Statistics()
	if after.Condition != Assisted || after.Sessions != 2 || after.RepairedInTime <= before.RepairedInTime {
		t.Errorf("no second session that repairs: %s", w.said())
	}
}

// A tunnel, or a lift: no datagram gets through, in either direction.
func TestASessionOutlastsAnOutageOfTheLastMileButNotALongOne(t *testing.T) {
	for _, outage := range []struct {
		seconds  int
		sessions uint64
	}{{20, 1}, {60, 2}} {
		w := newWorld(t, 1, settings())
		w.run(200 * time.Millisecond)
		for index := range 100 {
			w.forward(index)
			w.run(time.Millisecond)
		}
		w.loss = 1
		w.download(100, outage.seconds*100, 10*time.Millisecond)
		w.loss = 0
		w.run(40 * time.Second)
		if figures := w.shim.Statistics(); figures.Sessions != outage.sessions || figures.Condition != Assisted {
			t.Errorf("after %d s: %s", outage.seconds, w.said())
		}
	}
}

func TestAReportThatWantsWhatDoesNotExistIsMalformed(t *testing.T) {
	w := newWorld(t, 1, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	for wants, isReport := range map[[2]byte]bool{{0, 0}: true, {0, 5}: false, {1, 1}: false, {1, 2}: true, {2, 3}: false,
		{2, 4}: true, {2, 191}: true, {2, 192}: false, {3, 9}: false} {
		before := w.shim.Statistics().ControlDropped
		report := w.report(0)
		report[15], report[16] = wants[0], wants[1]
		w.say(report)
		w.run(20 * time.Millisecond)
		if isDropped := w.shim.Statistics().ControlDropped > before; isDropped == isReport {
			t.Errorf("%v: %v", wants, isDropped)
		}
	}
}

func TestASessionThatTheGatewayDoesNotKnowIsReplacedAtOnce(t *testing.T) {
	w := newWorld(t, 2, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	w.gateway.silent = true
	w.forward(50)
	w.run(30 * time.Millisecond)
	w.gateway.nonce = 0 // it has restarted
	last := w.sealed[len(w.sealed)-1]
	w.receive((&control{kind: typeRefusal, nonce: binary.BigEndian.Uint64(last[5:]), reason: refusedSession}).encode())
	w.run(time.Second)
	if w.shim.Statistics().Sessions != 2 {
		t.Errorf("no new session: %s", w.said())
	}
}

func TestTheTicketOfASessionIsShownToTheNextGatewayAndNoOlderOne(t *testing.T) {
	for _, withCookie := range []bool{false, true} {
		w := newWorld(t, 5, settings())
		w.gateway.withCookie = withCookie
		first, third := bytes.Repeat([]byte{0xa7}, ticketLength), bytes.Repeat([]byte{0xb8}, ticketLength)
		// A later revision may lengthen the ticket. A ticket that is too short, or missing, is ignored.
		for _, w.gateway.ticket = range [][]byte{append(bytes.Clone(first), 1, 2, 3), third[1:], third, nil, nil} {
			w.run(600 * time.Millisecond)
			w.say([]byte{messageGoodbye, 3})
			w.run(100 * time.Millisecond)
		}
		for at, expected := range [][]byte{nil, first, nil, third, nil} {
			if !bytes.Equal(w.gateway.shown[at], expected) {
				t.Errorf("handshake %d shows %x instead of %x", at, w.gateway.shown[at], expected)
			}
		}
	}
}

func TestASilentClientAsksForAnEchoWithWhatItsTransportSends(t *testing.T) {
	w := newWorld(t, 6, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	before := w.eacks
	w.shim.Send([]byte("anything"), w.now)
	w.drain()
	if w.eacks != before+1 || w.shim.session.liveness.asked != w.now {
		t.Errorf("%d eACKs, an echo was asked for at %v", w.eacks-before, w.shim.session.liveness.asked.Sub(w.now))
	}
	w.run(400 * time.Millisecond)
	w.shim.Send([]byte("anything"), w.now)
	w.drain()
	if w.eacks != before+1 {
		t.Error("it has said where it is already")
	}
}

func TestAClientThatHasNoAnswerSaysWhereItIsWhileAGatewayWaits(t *testing.T) {
	const gatewayWaits = 250 * time.Millisecond
	w := newWorld(t, 6, settings())
	w.run(200 * time.Millisecond)
	for index := range 50 {
		w.forward(index)
		w.run(time.Millisecond)
	}
	w.run(2 * echoInterval)
	before := w.eacks
	w.shim.Send([]byte("anything"), w.now)
	w.drain()
	if w.eacks != before {
		t.Error("it has said where it is already")
	}
	w.run(gatewayWaits - 50*time.Millisecond)
	if w.eacks != before+1 {
		t.Errorf("%d eACKs", w.eacks-before)
	}
}

func TestAResetEmptiesTheSetAndAChallengeIsAnswered(t *testing.T) {
	w := newWorld(t, 3, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 100, time.Millisecond)
	for epoch := uint16(1); epoch < 4; epoch++ {
		w.gateway.epoch = epoch
		w.say(append(binary.BigEndian.AppendUint16([]byte{messageReset}, epoch), 1))
		w.say(append(binary.BigEndian.AppendUint16([]byte{messageReset}, epoch-1), 1)) // is no newer one
		w.run(20 * time.Millisecond)
		if w.epoch != epoch || w.shim.session.anchor == 0 {
			t.Fatalf("epoch %d with anchor %d", w.epoch, w.shim.session.anchor)
		}
		w.download(int(epoch)*100, 100, time.Millisecond)
	}
	w.assertNothingIsLost(testHold)
	plaintext := append([]byte{messagePathChallenge}, "8 bytes."...)
	datagram, _, _ := w.gateway.seals.seal(plaintext)
	w.shim.Receive(datagram, 0, w.now)
	answer, err := w.gateway.opens.open(w.shim.Transmit(w.now))
	if err != nil || string(answer) != "\x068 bytes." {
		t.Errorf("the challenge is answered with %x, %v", answer, err)
	}
}

// skip forwards three datagrams, of which only the last one arrives.
func (w *world) skip(index int) {
	g := &w.gateway
	for last := index + 3; index < last; index++ {
		value := g.key.identify(materialOf(w.shim.params.scheme, datagramOf(index)))
		g.places = append(g.places, forwarded{index: index, value: value})
	}
	w.receive(g.number(len(g.places) - 1))
}

// queue reports whether a queue stands on the last mile.
func (w *world) queue(stands bool) {
	report := w.report(0)
	if stands {
		report[23], report[24] = 0xff, 0xff
	}
	w.say(report)
	w.run(20 * time.Millisecond)
}

func TestNothingWaitsWhileAQueueStands(t *testing.T) {
	w := newWorld(t, 5, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 300, time.Millisecond)
	w.gateway.silent = true
	w.skip(300)
	if w.deliveries[302] != 0 {
		t.Errorf("it does not wait although no queue stands: %s", w.said())
	}
	w.queue(true)
	w.run(time.Second)
	w.skip(303)
	if w.deliveries[305] != 1 {
		t.Errorf("it waits while a queue stands: %s", w.said())
	}
}

func TestNothingWaitsInAnOverflow(t *testing.T) {
	o, next, at := overflow{}, uint64(0), time.Unix(1, 0)
	arrive := func(until uint64, fast bool, lost func(uint64) bool) (first uint64) {
		for number := next; number < until; number++ {
			if !fast || !lost(number) {
				at = at.Add(time.Millisecond)
			}
			if lost(number) {
				continue
			}
			if o.onNewest(next, number, at) && first == 0 {
				first = number
			}
			next = number + 1
		}
		return first
	}
	if first := arrive(1000, true, func(number uint64) bool { return number%50 == 0 }); first != 0 {
		t.Errorf("the medium's losses are an overflow's from %d on", first)
	}
	if first := arrive(1100, true, func(number uint64) bool { return number%2 == 0 }); first == 0 || first > 1030 {
		t.Errorf("an overflow is found at %d", first)
	}
	// A medium that is blocked leaves the time of the lost datagrams empty.
	next, o = 0, overflow{}
	if first := arrive(5000, false, func(number uint64) bool { return number%100 >= 75 && number%5 > 0 }); first != 0 {
		t.Errorf("a blocked medium is an overflow from %d on", first)
	}
}

func TestANumberThatHasArrivedSpeaksForNothingElse(t *testing.T) {
	w := newWorld(t, 8, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	before := w.shim.session.set.size
	w.gateway.places[10].index = 99 // an attacker's, with the number of another one
	w.gateway.places[10].value = w.gateway.key.identify(materialOf(Trailer, datagramOf(99)))
	w.receive(w.gateway.number(10))
	if w.shim.session.set.size != before || w.deliveries[99] != 1 {
		t.Errorf("it enters the set: %s", w.said())
	}
}

func ofPrograms(hold time.Duration) Settings { return Settings{Scheme: Payload, MaximumHold: hold} }

// Needless repairs, repairs that the network copies, and its copies of all others.
func TestAProgramGetsEachDatagramOnce(t *testing.T) {
	for seed := range uint64(8) {
		for _, hold := range []time.Duration{-1, testHold} { // datagrams never wait, and they do
			w := newWorld(t, seed, ofPrograms(hold))
			w.run(300 * time.Millisecond)
			w.loss, w.duplicates, w.jitter = 0.03, 0.05, time.Duration(seed%3)*2*time.Millisecond
			w.download(0, 1500, time.Millisecond)
			w.assertNothingIsLost(max(hold, 0))
			for index, count := range w.deliveries {
				if count != 1 {
					t.Errorf("seed %d, hold %v: %d comes %d times", seed, hold, index, count)
				}
			}
			if figures := w.shim.Statistics(); len(w.deliveries) < 1490 || figures.Duplicates < 50 {
				t.Errorf("seed %d, hold %v: %d come: %s", seed, hold, len(w.deliveries), w.said())
			}
		}
	}
}

// A gateway that does not confirm distinct numbers also numbers a server's duplicate like a copy; and part of the
// bytes does not distinguish a forged datagram from a genuine one.
func TestASecondCopyIsDroppedWhereItIsKnownToBeOne(t *testing.T) {
	for _, of := range []struct {
		settings Settings
		isOld    bool
		comes    int
	}{{ofPrograms(testHold), false, 1}, {ofPrograms(testHold), true, 4}, {settings(), false, 4}} {
		w := newWorld(t, 5, of.settings)
		w.gateway.isOld = of.isOld
		w.loss = 0.1
		w.run(200 * time.Millisecond)
		w.download(0, 300, time.Millisecond)
		w.loss = 0
		w.skip(300)
		for range 3 {
			w.receive(w.gateway.number(len(w.gateway.places) - 1))
		}
		if w.deliveries[302] != 0 {
			t.Fatalf("it does not wait: %s", w.said())
		}
		w.run(2 * time.Second)
		if w.deliveries[302] != of.comes {
			t.Errorf("%+v: %d come out: %s", of, w.deliveries[302], w.said())
		}
		w.assertNothingIsLost(testHold)
	}
}

func TestWhatIsNoCopyIsHandedOn(t *testing.T) {
	w := newWorld(t, 5, ofPrograms(testHold))
	w.run(200 * time.Millisecond)
	w.download(0, 3000, time.Millisecond)
	for _, place := range []int{10, 2990} { // also of an earlier place
		w.receive(w.gateway.number(place))
	}
	if w.deliveries[10] != 1 || w.deliveries[2990] != 1 {
		t.Errorf("copies of %d and %d come", w.deliveries[10], w.deliveries[2990])
	}
	w.receive(datagramOf(10)) // the server's own, again
	w.forward(10)             // again, when the gateway has forgotten it
	w.run(time.Second)
	if w.deliveries[10] != 3 {
		t.Errorf("%d of 3 come", w.deliveries[10])
	}
	// The next session's places are others.
	w.say([]byte{messageGoodbye, 3})
	w.run(time.Second)
	w.download(0, 50, time.Millisecond)
	if w.deliveries[10] != 4 || w.shim.Statistics().Sessions != 2 {
		t.Errorf("%d of 4 come: %s", w.deliveries[10], w.said())
	}
}

// Who sees datagrams can be faster than they are.
func TestAForgedDatagramWithTheTagOfAGenuineOneTakesNoPlace(t *testing.T) {
	w := newWorld(t, 8, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	w.skip(50)
	genuine := w.gateway.number(51)
	forged := bytes.Clone(genuine)
	forged[numberLength+len("genuine datagram ")+1] ^= 1
	w.receive(forged)
	w.receive(genuine)
	w.run(time.Second)
	if w.deliveries[51] != 1 {
		t.Errorf("it comes %d times: %s", w.deliveries[51], w.said())
	}
}

func TestAGoodbyeEndsTheSessionAndAClosedShimIsSilent(t *testing.T) {
	w := newWorld(t, 4, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	w.say([]byte{messageGoodbye, 3})
	w.run(6 * time.Millisecond)
	if condition := w.shim.Statistics().Condition; condition != Asking {
		t.Errorf("after a goodbye: %s", condition)
	}
	w.run(time.Second)
	if figures := w.shim.Statistics(); figures.Sessions != 2 {
		t.Errorf("no new session: %s", w.said())
	}
	w.shim.Close(w.now)
	plaintext, err := w.gateway.opens.open(w.shim.Transmit(w.now))
	if err != nil || !bytes.Equal(plaintext, []byte{messageGoodbye, 1}) {
		t.Errorf("the last message is %x, %v", plaintext, err)
	}
	if due := w.shim.Timeout(); !due.IsZero() || w.shim.Transmit(w.now) != nil {
		t.Error("a closed shim has something to do")
	}
}

func TestWithoutAGatewayEverythingPassesAndQuestionsAreFew(t *testing.T) {
	w := newWorld(t, 5, settings())
	w.gateway.gone = true
	w.run(time.Minute)
	// Six in the first two seconds, and one each half minute.
	if questions := w.shim.Statistics().ControlBytesSent; questions < 7*questionPad || questions > 8*questionPad {
		t.Errorf("%d bytes of questions", questions)
	}
	w.download(0, 100, time.Millisecond)
	if figures := w.shim.Statistics(); figures.Condition == Assisted || len(w.deliveries) != 100 || figures.Kept > 0 {
		t.Errorf("without a gateway: %s", w.said())
	}
	own := []byte(magic + "\x99 begins like this, and is of an unknown version")
	if payload, isNow := w.shim.Receive(own, 0, w.now); !isNow || !bytes.Equal(payload, own) {
		t.Error("a transport's own datagram does not pass")
	}
}

func TestSettingsThatAreWrongAreRefusedWithTheirReason(t *testing.T) {
	for _, wrong := range []struct {
		settings Settings
		reason   error
	}{{Settings{Scheme: 9}, ErrScheme}, {Settings{Token: make([]byte, 201)}, ErrTokenTooLong}} {
		if _, err := NewShim[int](wrong.settings, [32]byte{}, begun()); !errors.Is(err, wrong.reason) {
			t.Errorf("%+v: %v", wrong.settings, err)
		}
	}
}

func TestATokenThatAGatewayHasDemandedIsShownAtOnce(t *testing.T) {
	for _, isEarly := range []bool{false, true} { // the new token comes before the refusal, or after it
		random := rand.NewChaCha8([32]byte{1})
		params, _ := Settings{Token: []byte("old")}.params()
		d, now := newDiscovery(params, nil, random, begun()), begun()
		if d.poll(now) == nil {
			t.Fatal("no question")
		}
		refuse := func() { d.onControl(&control{kind: typeRefusal, nonce: d.initiator.nonce, reason: refusedToken}, now) }
		if !isEarly {
			refuse()
			if d.poll(now.Add(time.Second)) != nil {
				t.Error("the refused token is shown again")
			}
		}
		if d.setAccess([]byte("new"), nil, now) {
			t.Error("the key has not changed")
		}
		if isEarly {
			refuse()
		}
		if d.poll(now) == nil || !bytes.Contains(d.initiator.payload, []byte("new")) {
			t.Errorf("early %v: the next question is due at %v", isEarly, d.nextAt)
		}
	}
}

func TestAnotherGatewayKeyEndsASessionAndTheSameOneDoesNot(t *testing.T) {
	w := newWorld(t, 4, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	own := [32]byte(w.gateway.static.Public)
	if err := w.shim.SetAccess([]byte("token"), &own, w.now); err != nil || w.shim.Statistics().Condition != Assisted {
		t.Errorf("with the gateway's key: %v, %s", err, w.said())
	}
	if err := w.shim.SetAccess([]byte("token"), &[32]byte{9}, w.now); err != nil || w.shim.Statistics().Condition != Asking {
		t.Errorf("with another key: %v, %s", err, w.said())
	}
	plaintext, err := w.gateway.opens.open(w.shim.Transmit(w.now))
	if err != nil || !bytes.Equal(plaintext, []byte{messageGoodbye, 1}) {
		t.Errorf("the last message is %x, %v", plaintext, err)
	}
	w.run(2 * time.Second)
	if figures := w.shim.Statistics(); figures.Sessions != 1 {
		t.Errorf("a gateway with a wrong key assists: %s", w.said())
	}
	if err := w.shim.SetAccess(nil, nil, w.now); err != nil {
		t.Error(err)
	}
	w.drain()
	w.run(2 * time.Second)
	if figures := w.shim.Statistics(); figures.Sessions != 2 {
		t.Errorf("no session with any gateway: %s", w.said())
	}
	if err := w.shim.SetAccess(make([]byte, 201), nil, w.now); !errors.Is(err, ErrTokenTooLong) {
		t.Errorf("a token of 201 bytes: %v", err)
	}
}
