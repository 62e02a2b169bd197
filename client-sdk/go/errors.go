package packrat

import "errors"

// The errors of Wrap, NewShim and SetAccess, for errors.Is; their texts name the value.
var (
	// ErrConnected is the error for a socket that is connected to one peer.
	ErrConnected = errors.New("packrat: the socket is connected")
	// ErrScheme is the error for a scheme that does not exist.
	ErrScheme = errors.New("packrat: unknown Settings.Scheme")
	// ErrTokenTooLong is the error for a token of more bytes than any gateway issues.
	ErrTokenTooLong = errors.New("packrat: the token is too long")
)
