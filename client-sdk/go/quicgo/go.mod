module packrat.dev/packrat/quicgo

go 1.25.0

require (
	github.com/quic-go/quic-go v0.61.0
	packrat.dev/packrat v0.1.0
)

require (
	github.com/flynn/noise v1.1.0 // indirect
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	github.com/quic-go/qpack v0.6.0 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

replace packrat.dev/packrat => ..
