//! What secures connections: one library for all of them, and none that is built from C++.

/// Chooses it for this process; to be called before a client is made.
pub(crate) fn prepare() {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        // Somebody else was first, and theirs is as good.
    }
}
