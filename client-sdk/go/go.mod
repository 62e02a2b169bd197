module packrat.dev/packrat

go 1.24.0

require (
	github.com/flynn/noise v1.1.0
	github.com/zeebo/xxh3 v1.1.0
	golang.org/x/crypto v0.48.0
	golang.org/x/net v0.50.0
)

require (
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	golang.org/x/sys v0.41.0 // indirect
)
