package packrat

import (
	"encoding/binary"
	"syscall"
)

// UDP_SEGMENT of Linux, which the package syscall does not have.
const udpSegment = 103

// segmentMessage is the value of a control message in which the program asks the system to cut its data into
// datagrams (GSO); nil: there is no such message.
func segmentMessage(oob []byte) []byte {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if asksForSegments(&m) {
			return m.Data
		}
	}
	return nil
}

func asksForSegments(m *syscall.SocketControlMessage) bool {
	return m.Header.Level == syscall.IPPROTO_UDP && m.Header.Type == udpSegment && len(m.Data) >= 2
}

// withoutSegment has the other control messages, for datagrams that the system is not to cut.
func withoutSegment(oob []byte) []byte {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || segmentMessage(oob) == nil {
		return oob
	}
	others, at := make([]byte, 0, len(oob)), 0
	for _, m := range messages {
		end := min(at+syscall.CmsgSpace(len(m.Data)), len(oob))
		if !asksForSegments(&m) {
			others = append(others, oob[at:end]...)
		}
		at = end
	}
	return others
}

// segmentOf is the length that the program asks for; 0: it sends one datagram.
func segmentOf(oob []byte) int {
	if value := segmentMessage(oob); value != nil {
		return int(binary.NativeEndian.Uint16(value))
	}
	return 0
}

// setSegment asks for another length in the same message.
func setSegment(oob []byte, length int) {
	if value := segmentMessage(oob); value != nil {
		binary.NativeEndian.PutUint16(value, uint16(length))
	}
}
