//! The emulated path: delay, rate, queue and loss, as a sans-IO model and as real UDP sockets.
