// The clients of the demo in Go: one with quic-go, and WireGuard's own program, as they are.
module packrat.dev/packrat/demo

go 1.26.0

require github.com/quic-go/quic-go v0.61.0

require (
	github.com/quic-go/qpack v0.6.0 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	golang.zx2c4.com/wintun v0.0.0-20230126152724-0fa3db229ce2 // indirect
	golang.zx2c4.com/wireguard v0.0.0-20260522210424-ecfc5a8d5446 // indirect
)

tool golang.zx2c4.com/wireguard

require packrat.dev/packrat/transfer v0.0.0

replace packrat.dev/packrat/transfer => ../../transfer
