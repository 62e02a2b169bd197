//! Joins the client core to unmodified s2n-quic.
