//! The DNS resolver of the HTTP clients, with the SSRF check: `ctx_core::Reach` decides which addresses are allowed.

use ctx_core::{ForbiddenAddress, NetworkScope, Reach};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Hosts that a server may refer to, in OAuth metadata, as long as the program runs.
const REFERRED_HOSTS_MAX: usize = 64;

/// A host name with forbidden addresses only.
#[derive(Debug, thiserror::Error)]
#[error("it leads to {0}, which may not be connected to")]
pub(super) struct ForbiddenHost(ForbiddenAddress);

/// A DNS resolver that returns allowed addresses only. The client connects to these, without a second lookup.
#[derive(Clone, Debug)]
pub(super) struct CheckedNames {
    /// The policy for the configured server, and for the user's proxy.
    own: Reach,
    /// The policies for hosts that a server has named.
    referred: Arc<Mutex<HashMap<String, Reach>>>,
}

impl CheckedNames {
    /// The resolver for a server in the configuration.
    pub(super) fn of_server(url: &str) -> Self {
        let url = Url::parse(url).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        Self { own: Reach::configured(host), referred: Arc::default() }
    }

    /// Allows a host that a server of this scope has named. A literal address is checked now, a name on each lookup.
    pub(super) fn refer(&self, host: &str, scope: NetworkScope) -> Result<(), String> {
        let reach = Reach::of_referrer(scope);
        reach
            .check_host(host)
            .map_err(|forbidden| format!("is {forbidden}, and the server that names it is not"))?;
        let mut referred = self.referred.lock().unwrap_or_else(PoisonError::into_inner);
        if referred.len() >= REFERRED_HOSTS_MAX && !referred.contains_key(host) {
            return Err(format!("is one more than {REFERRED_HOSTS_MAX} hosts that the server names"));
        }
        referred.insert(host.to_owned(), reach);
        Ok(())
    }

    fn reach_of(&self, name: &str) -> Reach {
        let referred = self.referred.lock().unwrap_or_else(PoisonError::into_inner);
        referred.get(name).copied().unwrap_or(self.own)
    }
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.reach_of(name.as_str());
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(Box::new(reach.reachable(addresses).map_err(ForbiddenHost)?.into_iter()) as Addrs)
        })
    }
}

/// The network scope of a URL's host: that of its farthest address, and the internet if it does not resolve, as behind
/// a proxy.
pub(super) async fn scope_of(url: &Url) -> NetworkScope {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match tokio::net::lookup_host((host, 0)).await {
        Ok(addresses) => NetworkScope::of_all(addresses.map(|address| address.ip())),
        Err(_) => NetworkScope::Internet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn resolved(names: &CheckedNames, name: &str) -> Result<usize, String> {
        let resolved = names.resolve(name.parse().unwrap()).await;
        resolved.map(Iterator::count).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_name_in_the_configuration_does_not_lead_to_metadata() {
        // A literal address resolves to itself.
        let names = CheckedNames::of_server("https://mcp.example/mcp");
        for name in ["169.254.169.254", "fe80::1", "fd00:ec2::254", "2002:a9fe:a9fe::1", "100.100.100.200"] {
            let refused = resolved(&names, name).await.unwrap_err();
            assert!(refused.ends_with("which may not be connected to"), "{name}: {refused}");
        }
        assert!(resolved(&names, "localhost").await.unwrap() > 0);
        let named = CheckedNames::of_server("http://169.254.7.7/mcp");
        assert_eq!(resolved(&named, "169.254.7.7").await, Ok(1), "configuration writes the address itself");
        assert!(resolved(&named, "169.254.169.254").await.is_err());
    }

    #[tokio::test]
    async fn a_host_that_a_public_server_names_is_not_on_this_machine() {
        let names = CheckedNames::of_server("https://mcp.example/mcp");
        for host in ["127.0.0.1", "[::1]", "localhost", "10.0.0.1", "[fd12::1]", "169.254.169.254"] {
            assert!(names.refer(host, NetworkScope::Internet).is_err(), "{host}");
        }
        // A name is checked when it is resolved; `localhost` stands for any name with a loopback address.
        names.referred.lock().unwrap().insert("localhost".to_owned(), Reach::INTERNET);
        assert!(resolved(&names, "localhost").await.is_err());
        names.refer("localhost", NetworkScope::Loopback).unwrap();
        assert!(resolved(&names, "localhost").await.unwrap() > 0);
        for count in 0..REFERRED_HOSTS_MAX {
            names.refer(&format!("{count}.example"), NetworkScope::Internet).ok();
        }
        assert!(names.refer("one.more.example", NetworkScope::Internet).is_err());
    }

    #[tokio::test]
    async fn a_server_is_as_near_as_its_addresses_are() {
        for (url, scope) in [
            ("http://127.0.0.1:1/mcp", NetworkScope::Loopback),
            ("http://[::1]/mcp", NetworkScope::Loopback),
            ("http://localhost/mcp", NetworkScope::Loopback),
            ("http://10.0.0.1/mcp", NetworkScope::Private),
            ("https://8.8.8.8/mcp", NetworkScope::Internet),
            ("https://nobody.invalid/mcp", NetworkScope::Internet),
        ] {
            assert_eq!(scope_of(&Url::parse(url).unwrap()).await, scope, "{url}");
        }
    }
}
