// The download of the demo's and the laboratory's programs in Go, and what they print about it.
module packrat.dev/packrat/transfer

go 1.26.0
