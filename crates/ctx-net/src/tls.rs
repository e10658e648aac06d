//! TLS set-up: rustls with the ring provider for every connection of the process.

/// Installs the crypto provider of the process; called before a client is built.
pub(crate) fn install_provider() {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        // The provider is already installed.
    }
}
