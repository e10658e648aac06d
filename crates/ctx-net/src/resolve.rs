//! DNS resolution under the SSRF policy of `ctx_core::Reach`. A connection uses exactly the addresses that were
//! checked, which prevents DNS rebinding.

use crate::ForbiddenHost;
use ctx_core::{AddressPolicy, ForbiddenAddress, NetworkScope};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use url::Url;

/// Maximum number of hosts that remote parties may name to one client that uses a proxy of the environment.
const NAMED_HOSTS_MAX: usize = 64;

/// A host that is refused by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A literal address, or a `localhost` name, that the policy refuses.
    #[error("is {0}, which the server may not refer to")]
    Forbidden(ForbiddenAddress),
    /// Remote parties have named too many hosts.
    #[error("exceeds the limit of {NAMED_HOSTS_MAX} hosts that servers may refer to")]
    TooMany,
}

/// Why a host name has no usable addresses.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The lookup failed.
    #[error(transparent)]
    Lookup(io::Error),
    /// The policy refuses all its addresses.
    #[error(transparent)]
    Forbidden(ForbiddenHost),
}

/// Resolves a host name; returns the addresses that the policy allows.
pub async fn resolve(host: &str, port: u16, reach: AddressPolicy) -> Result<Vec<SocketAddr>, ResolveError> {
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(ResolveError::Lookup)?;
    allowed_addresses(addresses, reach)
}

fn allowed_addresses(
    addresses: impl IntoIterator<Item = SocketAddr>,
    reach: AddressPolicy,
) -> Result<Vec<SocketAddr>, ResolveError> {
    reach.filter_allowed(addresses).map_err(|address| ResolveError::Forbidden(ForbiddenHost(address)))
}

/// The network scope of a URL's host: that of its farthest address, or the internet if it does not resolve, as behind a
/// proxy.
pub async fn scope_of_host(url: &Url) -> NetworkScope {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match tokio::net::lookup_host((host, 0)).await {
        Ok(addresses) => NetworkScope::of_all(addresses.map(|address| address.ip())),
        Err(_) => NetworkScope::Internet,
    }
}

/// A host name with a fixed address, used instead of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownHost {
    pub(crate) name: &'static str,
    pub(crate) address: IpAddr,
}

/// The DNS resolver of one connection pool: returns only allowed addresses.
#[derive(Clone, Debug)]
pub(crate) struct CheckedResolver {
    reach: AddressPolicy,
    /// The hosts that `reach` applies to; `None` means all. With proxies of the environment the resolver is also asked
    /// for the proxies, which the user configured and which may be on a private network.
    policy_hosts: Option<Arc<Mutex<HashSet<String>>>>,
    known_host: Option<KnownHost>,
}

impl CheckedResolver {
    /// A resolver that applies a policy to every name.
    pub(crate) fn new(reach: AddressPolicy) -> Self {
        Self { reach, policy_hosts: None, known_host: None }
    }

    /// A resolver that applies a policy to the names [added](Self::add) to it, and [`AddressPolicy::OWN`] to all others.
    pub(crate) fn for_added_hosts(reach: AddressPolicy) -> Self {
        Self { reach, policy_hosts: Some(Arc::default()), known_host: None }
    }

    pub(crate) fn with_known_host(self, known_host: Option<KnownHost>) -> Self {
        Self { known_host, ..self }
    }

    /// Adds a host that the policy applies to.
    pub(crate) fn add(&self, host: &str) -> Result<(), HostError> {
        let Some(policy_hosts) = self.policy_hosts.as_ref().filter(|_| self.reach != AddressPolicy::TRUSTED)
        else {
            return Ok(());
        };
        let mut policy_hosts = policy_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if policy_hosts.len() >= NAMED_HOSTS_MAX && !policy_hosts.contains(host) {
            return Err(HostError::TooMany);
        }
        policy_hosts.insert(host.to_owned());
        Ok(())
    }

    fn policy_for(&self, name: &str) -> AddressPolicy {
        match &self.policy_hosts {
            Some(policy_hosts)
                if !policy_hosts.lock().unwrap_or_else(PoisonError::into_inner).contains(name) =>
            {
                AddressPolicy::TRUSTED
            }
            _ => self.reach,
        }
    }
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.policy_for(name.as_str());
        let known_host = self.known_host.filter(|host| host.name == name.as_str());
        Box::pin(async move {
            let resolved = match known_host {
                Some(KnownHost { address, .. }) => allowed_addresses([SocketAddr::new(address, 0)], reach),
                None => resolve(name.as_str(), 0, reach).await,
            };
            match resolved {
                Ok(addresses) => Ok(Box::new(addresses.into_iter()) as Addrs),
                Err(ResolveError::Lookup(error)) => Err(error.into()),
                Err(ResolveError::Forbidden(error)) => Err(error.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn resolved(resolver: &CheckedResolver, name: &str) -> Result<usize, String> {
        let resolved = resolver.resolve(name.parse().unwrap()).await;
        resolved.map(Iterator::count).map_err(|error| {
            assert!(error.is::<ForbiddenHost>(), "{name}: {error}");
            error.to_string()
        })
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_forbidden_address_is_refused() {
        // A literal address resolves to itself.
        let names = [
            "169.254.169.254",
            "0.0.0.0",
            "fe80::1",
            "2002:a9fe:a9fe::1",
            "fd00:ec2::254",
            "100.100.100.200",
        ];
        for resolver in [
            CheckedResolver::new(AddressPolicy::TRUSTED),
            CheckedResolver::for_added_hosts(AddressPolicy::INTERNET),
        ] {
            for name in names {
                let refused = resolved(&resolver, name).await.unwrap_err();
                assert!(refused.starts_with("not allowed to connect to"), "{name}: {refused}");
            }
            assert_eq!(resolved(&resolver, "127.0.0.1").await, Ok(1));
            assert!(resolved(&resolver, "localhost").await.unwrap() > 0);
        }
        let refused =
            resolved(&CheckedResolver::new(AddressPolicy::INTERNET), "localhost").await.unwrap_err();
        assert_eq!(refused, "not allowed to connect to a loopback address");
    }

    #[tokio::test]
    async fn a_host_that_a_public_server_names_is_not_on_this_machine() {
        let resolver = CheckedResolver::for_added_hosts(AddressPolicy::INTERNET);
        // Until it is added, the resolver treats it as the user's proxy.
        assert!(resolved(&resolver, "localhost").await.unwrap() > 0);
        resolver.add("localhost").unwrap();
        assert!(resolved(&resolver, "localhost").await.is_err());
        for count in 1..NAMED_HOSTS_MAX {
            resolver.add(&format!("{count}.example")).unwrap();
        }
        assert_eq!(resolver.add("one.more.example"), Err(HostError::TooMany));
        assert_eq!(resolver.add("1.example"), Ok(()));
        assert!(resolved(&resolver, "localhost").await.is_err());
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
            assert_eq!(scope_of_host(&Url::parse(url).unwrap()).await, scope, "{url}");
        }
    }
}
