package packrat

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strconv"
	"time"
)

// Control datagrams (docs/PROTOCOL.md, sections 2 and 3).
const (
	version       = 2
	controlLength = 5    // the shortest control datagram
	longest       = 1200 // of control datagrams without a number
	discoverPad   = 64
	questionPad   = 256
	mostVersions  = 32
	cookieLength  = 16
	ticketLength  = 16
	numberLength  = 8 // of the number in front of a datagram
	numberModulus = 1 << 24
	fewestSums    = 2
)

const magic = "\x0bPkr"

type controlType byte

const (
	typeDiscover controlType = 1
	typeOffer    controlType = 2
	typeInit     controlType = 3
	typeInitAck  controlType = 4
	typeRefusal  controlType = 5
	typeSealed   controlType = 8
	typeNumbered controlType = 9
	typeBundle   controlType = 10
)

// Reasons of Refusals that this client distinguishes.
const (
	refusedFull    = 3
	refusedCookie  = 4
	refusedSession = 5
	refusedToken   = 6
	refusedHoldout = 7
)

// Sealed messages (section 10).
const (
	messageEack          = 1
	messageReport        = 2
	messageReset         = 3
	messageGoodbye       = 4
	messagePathChallenge = 5
	messagePathResponse  = 6
	messageBaseline      = 7
	messageCoded         = 8
	messageRecovered     = 9
	messageHoles         = 10
	messageGroupCoded    = 11
)

// Records of client and gateway params (section 6).
const (
	recordVersions = 3
	recordNumbered = 4
	recordTicket   = 5
	recordBundles  = 7
	recordDistinct = 8
	toClient       = 1
	toServer       = 2
)

const (
	formPowerSums    = 1
	formCodedSymbols = 2
	fewestSymbols    = 4
	mostSymbols      = 191
	ageUnit          = 16 * time.Microsecond
	saturatedAge     = 65535
	mostRuns         = 64
	greaseFirst      = 192
	greaseCount      = 32
)

var errMalformed = errors.New("malformed")

// reader takes fields off a message, one after the other. After the first missing byte all fields
// are zero, and err is set.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) take(length int) []byte {
	if length > len(r.rest) {
		r.err, r.rest = errMalformed, nil
		return make([]byte, length)
	}
	head := r.rest[:length]
	r.rest = r.rest[length:]
	return head
}

func (r *reader) u8() byte    { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// end is an error if bytes were missing, or are left.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.err = errMalformed
	}
	return r.err
}

// control is a control datagram; the fields that its type has.
type control struct {
	kind       controlType
	nonce      uint64
	versions   []byte
	noise      []byte
	version    byte
	cookieTime uint32
	cookie     [cookieLength]byte
	reason     byte
	session    uint32
	counter    uint32
	ciphertext []byte
}

func isControl(datagram []byte) bool {
	return len(datagram) >= controlLength && string(datagram[:len(magic)]) == magic
}

func header(kind controlType) []byte {
	return append(make([]byte, 0, questionPad), magic[0], magic[1], magic[2], magic[3], version<<4|byte(kind))
}

func (c *control) encode() []byte {
	out := header(c.kind)
	if c.kind == typeSealed {
		out = binary.BigEndian.AppendUint32(out, c.session)
		out = binary.BigEndian.AppendUint32(out, c.counter)
		return append(out, c.ciphertext...)
	}
	out = binary.BigEndian.AppendUint64(out, c.nonce)
	padded := 0
	switch c.kind {
	case typeDiscover:
		padded = discoverPad
		out = append(append(out, byte(len(c.versions))), c.versions...)
		if len(c.noise) > 0 {
			padded = questionPad
			out = append(binary.BigEndian.AppendUint16(out, uint16(len(c.noise))), c.noise...)
		}
	case typeOffer:
		out = append(binary.BigEndian.AppendUint32(append(out, c.version), c.cookieTime), c.cookie[:]...)
	case typeInit:
		padded = questionPad
		out = append(binary.BigEndian.AppendUint32(out, c.cookieTime), c.cookie[:]...)
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(c.noise))), c.noise...)
	case typeInitAck:
		out = append(out, c.noise...)
	case typeRefusal:
		out = append(append(out, c.reason, byte(len(c.versions))), c.versions...)
	}
	if missing := padded - len(out); missing > 0 {
		out = append(out, make([]byte, missing)...)
	}
	return out
}

// decodeControl reads a control datagram. The slices in it are parts of the datagram.
func decodeControl(datagram []byte) (control, error) {
	if !isControl(datagram) || len(datagram) > longest {
		return control{}, errMalformed
	}
	c := control{kind: controlType(datagram[4] & 15)}
	isOurs := datagram[4]>>4 == version
	if !isOurs && c.kind != typeDiscover && c.kind != typeRefusal {
		return control{}, errMalformed
	}
	r := reader{rest: datagram[controlLength:]}
	if c.kind == typeSealed {
		c.session, c.counter = r.u32(), r.u32()
		c.ciphertext = r.rest
		return c, r.err
	}
	list := func() []byte {
		count := int(r.u8())
		if count > mostVersions {
			r.err = errMalformed
		}
		return r.take(count)
	}
	c.nonce = r.u64()
	switch c.kind {
	case typeDiscover:
		c.versions = list()
		if len(datagram) < discoverPad {
			return control{}, errMalformed
		}
		if isOurs && len(datagram) >= questionPad {
			c.noise = r.take(int(r.u16()))
		}
		return c, r.err
	case typeOffer:
		c.version, c.cookieTime = r.u8(), r.u32()
		copy(c.cookie[:], r.take(cookieLength))
		return c, r.end()
	case typeInit:
		if len(datagram) < questionPad {
			return control{}, errMalformed
		}
		c.cookieTime = r.u32()
		copy(c.cookie[:], r.take(cookieLength))
		c.noise = r.take(int(r.u16()))
		return c, r.err
	case typeInitAck:
		c.noise = r.rest
		return c, r.err
	case typeRefusal:
		c.reason, c.versions = r.u8(), list()
		return c, r.end()
	}
	return control{}, errMalformed
}

// splitNumber takes the number off a numbered datagram.
func splitNumber(datagram []byte) (number uint32, base []byte, ok bool) {
	if len(datagram) < numberLength || !isControl(datagram) || datagram[4] != version<<4|byte(typeNumbered) {
		return 0, datagram, false
	}
	return binary.BigEndian.Uint32(datagram[4:8]) & (numberModulus - 1), datagram[numberLength:], true
}

// joinBundle is the bundle of these datagrams, with an optional control datagram behind them; nil if it is
// impossible, because there are no or too many datagrams, one is too short or too long or begins like a control
// datagram, or together they are too long.
func joinBundle(datagrams [][]byte, message []byte) []byte {
	length := controlLength + 1 + len(datagrams) + len(message)
	for _, datagram := range datagrams {
		length += len(datagram)
		if len(datagram) < shortestBundled || len(datagram) > 255 || isControl(datagram) {
			return nil
		}
	}
	if len(datagrams) == 0 || len(datagrams) > mostBundled || length > longest {
		return nil
	}
	out := append(make([]byte, 0, length), magic...)
	out = append(out, version<<4|byte(typeBundle), byte(len(datagrams)))
	for _, datagram := range datagrams {
		out = append(out, byte(len(datagram)))
	}
	for _, datagram := range datagrams {
		out = append(out, datagram...)
	}
	return append(out, message...)
}

// isBundle is true for a bundle, whatever is in it.
func isBundle(datagram []byte) bool {
	return isControl(datagram) && datagram[4] == version<<4|byte(typeBundle)
}

// BearsMark is true if a datagram of Transmit carries datagrams of the transport, in a bundle or sent again. It then
// bears the ECN mark of the transport's last one: without a mark it would contradict the transport's counts (RFC
// 9000, section 13.4.2.1).
func BearsMark(datagram []byte) bool {
	_, base, _ := splitNumber(datagram)
	return !isControl(base) || isBundle(datagram)
}

func appendRecord(out []byte, kind byte, value []byte) []byte {
	return append(append(out, kind, byte(len(value))), value...)
}

// findRecord is the value of the first record of a type; nil if there is none. Bytes that form no record are ignored.
func findRecord(data []byte, kind byte) []byte {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if data[0] == kind {
			return data[2 : 2+int(data[1])]
		}
		data = data[2+int(data[1]):]
	}
	return nil
}

// clientParams is the payload of Noise message 1.
type clientParams struct {
	scheme       Scheme
	codedSymbols byte
	powerSums    byte
	maximumHold  time.Duration
	token        []byte
	// Requests for numbers; flags 0: no request.
	numbered numbered
	// Ticket of the server that the client had through the previous gateway; the zero value: no ticket.
	ticket serverTicket
	// The client may send bundles.
	bundles  bool
	versions []byte
	// A meaningless record, behind all others.
	grease []byte
}

// serverTicket names a client's server to all gateways with one key, and is opaque to the client; the zero value: no
// ticket.
type serverTicket [ticketLength]byte

// numbered is the record about numbers.
type numbered struct {
	flags   byte
	largest uint16
}

func (p *clientParams) encode() []byte {
	out := []byte{byte(p.scheme), p.codedSymbols, p.powerSums}
	hold := min(p.maximumHold.Microseconds(), 1<<32-1)
	out = binary.BigEndian.AppendUint32(out, uint32(hold))
	out = append(append(out, byte(len(p.token))), p.token...)
	if p.numbered.flags != 0 {
		value := binary.BigEndian.AppendUint16([]byte{p.numbered.flags}, p.numbered.largest)
		out = appendRecord(out, recordNumbered, value)
	}
	if p.ticket != (serverTicket{}) {
		out = appendRecord(out, recordTicket, p.ticket[:])
	}
	if p.bundles {
		out = appendRecord(out, recordBundles, nil)
	}
	out = appendRecord(out, recordVersions, p.versions)
	return append(out, p.grease...)
}

// gatewayParams is the payload of Noise message 2.
type gatewayParams struct {
	session      uint32
	scheme       Scheme
	codedSymbols byte
	powerSums    byte
	cacheBytes   uint32
	secret       [32]byte
	numbered     numbered
	ticket       serverTicket
	bundles      bool
	// Set if each number towards the client belongs to one datagram of the server.
	distinct bool
}

func decodeGatewayParams(data []byte) (gatewayParams, error) {
	r := reader{rest: data}
	p := gatewayParams{session: r.u32(), scheme: Scheme(r.u8()), codedSymbols: r.u8(), powerSums: r.u8(), cacheBytes: r.u32()}
	copy(p.secret[:], r.take(32))
	if value := findRecord(r.rest, recordNumbered); len(value) >= 3 {
		p.numbered = numbered{value[0], binary.BigEndian.Uint16(value[1:])}
	}
	if value := findRecord(r.rest, recordTicket); len(value) >= ticketLength {
		p.ticket = serverTicket(value)
	}
	p.bundles = findRecord(r.rest, recordBundles) != nil
	p.distinct = findRecord(r.rest, recordDistinct) != nil
	isKnown := p.scheme == Trailer || p.scheme == Payload
	if r.err != nil || !isKnown || p.powerSums < fewestSums && p.codedSymbols < 4 {
		return gatewayParams{}, errMalformed
	}
	return p, nil
}

// names are the names of the session, one for each path (section 7).
func (p *gatewayParams) names() [4]uint32 {
	names := [4]uint32{p.session}
	for index := 1; index < len(names); index++ {
		label := "packrat/2 name " + strconv.Itoa(index)
		digest := sha256.Sum256(append(p.secret[:len(p.secret):len(p.secret)], label...))
		names[index] = binary.BigEndian.Uint32(digest[:])
	}
	return names
}

func encodeAge(age time.Duration) uint16 {
	return uint16(min(max(age, 0)/ageUnit, saturatedAge))
}

// eack is a client's message about its set. An identifier of 0 means no identifier.
type eack struct {
	epoch     uint16
	echo      bool
	holes     int
	newest    identifier
	newestAge time.Duration
	anchor    identifier
	form      byte
	count     byte
	prefix    []byte
}

func (e *eack) encode() []byte {
	var flags byte
	if e.echo {
		flags |= 1
	}
	if e.anchor != 0 {
		flags |= 2
	}
	if e.newest != 0 {
		flags |= 4
	}
	out := make([]byte, 0, 24+len(e.prefix))
	out = binary.BigEndian.AppendUint16(append(out, messageEack), e.epoch)
	out = append(out, flags, byte(min(e.holes, 255)))
	if e.newest != 0 {
		out = binary.BigEndian.AppendUint32(out, uint32(e.newest))
		out = binary.BigEndian.AppendUint16(out, encodeAge(e.newestAge))
	}
	if e.anchor != 0 {
		out = binary.BigEndian.AppendUint32(out, uint32(e.anchor))
	}
	return append(append(out, e.form, e.count), e.prefix...)
}

// report is a gateway's answer to an eACK. A form of 0 requests no other form.
type report struct {
	epoch     uint16
	echo      uint32
	echoAge   uint16
	missing   uint16
	settled   identifier
	form      byte
	count     byte
	roundTrip uint32
	loss      uint16
	queueing  uint16
	totals    [6]uint32
}

// holes are a gateway's report on numbered datagrams (section 10): missing places below expected, newest first.
type holes struct {
	wanted   bool
	expected uint32
	age      uint16
	runs     []holeRun
}

// holeRun is a run of missing places.
type holeRun struct {
	first uint32
	count uint16
}

func (h *holes) read(r *reader) {
	flags := r.u8()
	h.wanted, h.expected, h.age = flags&1 != 0, r.u32(), r.u16()
	if flags > 1 {
		r.err = errMalformed
	}
	above := h.expected
	for r.err == nil && len(r.rest) > 0 {
		distance, count := r.u16(), r.u16()
		if count == 0 || len(h.runs) == mostRuns {
			r.err = errMalformed
		}
		above -= uint32(distance) + uint32(count)
		h.runs = append(h.runs, holeRun{above, count})
	}
}

// message is any message of a gateway, with the fields that its type has.
type message struct {
	kind   byte
	report report
	holes  holes
	epoch  uint16
	reason byte
	data   [8]byte
}

var errUnknownMessage = errors.New("a message of a later revision, or without meaning")

// decodeMessage reads a plaintext.
func decodeMessage(plaintext []byte) (message, error) {
	r := reader{rest: plaintext}
	m := message{kind: r.u8()}
	switch m.kind {
	case messageReport:
		p := &m.report
		p.epoch, p.echo, p.echoAge, p.missing = r.u16(), r.u32(), r.u16(), r.u16()
		p.settled, p.form, p.count = identifier(r.u32()), r.u8(), r.u8()
		p.roundTrip, p.loss, p.queueing = r.u32(), r.u16(), r.u16()
		for at := range p.totals {
			p.totals[at] = r.u32()
		}
		isWish := p.form == 0 && p.count == 0 || p.form == formPowerSums && p.count >= fewestSums ||
			p.form == formCodedSymbols && p.count >= fewestSymbols && p.count <= mostSymbols
		if uint32(p.settled) >= prime || r.err == nil && !isWish {
			return message{}, errMalformed
		}
	case messageReset:
		m.epoch, m.reason = r.u16(), r.u8()
	case messageGoodbye:
		m.reason = r.u8()
	case messagePathChallenge, messagePathResponse:
		copy(m.data[:], r.take(8))
	case messageHoles:
		m.holes.read(&r)
	case messageEack, messageBaseline, messageCoded, messageRecovered, messageGroupCoded:
		// A message of the other direction, of streams, or never agreed.
		return message{}, errMalformed
	default:
		if r.err == nil {
			return message{}, errUnknownMessage
		}
	}
	if err := r.end(); err != nil {
		return message{}, err
	}
	return m, nil
}
