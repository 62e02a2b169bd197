//! Sockets of the gateway: GRO in, GSO out, I/O threads, the process-wide session table.
