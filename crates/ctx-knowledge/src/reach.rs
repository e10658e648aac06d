//! DNS resolver for HTTP clients that applies the SSRF policy of `ctx_core::Reach`.

use ctx_core::{ForbiddenAddress, Reach};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A host name that resolves only to forbidden addresses.
#[derive(Debug, thiserror::Error)]
#[error("it leads to {0}, which may not be connected to")]
pub(crate) struct ForbiddenHost(ForbiddenAddress);

/// Resolves host names to allowed addresses only; the client connects to exactly those, which rules out DNS rebinding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedResolver(pub(crate) Reach);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(Box::new(reach.reachable(addresses).map_err(ForbiddenHost)?.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_does_not_lead_to_metadata() {
        // A literal address resolves to itself.
        for name in ["169.254.169.254", "fe80::1", "fd00:ec2::254", "2002:a9fe:a9fe::1"] {
            let error = CheckedResolver(Reach::OWN).resolve(name.parse().unwrap()).await.err().unwrap();
            assert!(error.is::<ForbiddenHost>(), "{name}: {error}");
        }
        assert!(CheckedResolver(Reach::OWN).resolve("localhost".parse().unwrap()).await.is_ok());
        assert!(CheckedResolver(Reach::INTERNET).resolve("localhost".parse().unwrap()).await.is_err());
    }
}
