//! Envoy dynamic module: UDP listener filter and bootstrap extension.
