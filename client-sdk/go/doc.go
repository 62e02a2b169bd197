// Package packrat is assistance below any UDP transport: a gateway on the path repairs the losses of
// a lossy last mile for the program, in the protocol packrat/2 (docs/PROTOCOL.md).
//
// Wrap takes over a UDP socket. Shim is the same without a socket.
package packrat
