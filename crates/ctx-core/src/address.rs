//! Addresses that are not reached on anybody's behalf: those that tell a machine's secrets to whoever asks, and
//! those that are nobody's. Loopback and private networks are the user's own, and allowed.
//!
//! A name is checked where it is connected to, on the addresses that it leads to then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where clouds answer for a machine's credentials, besides the link-local addresses.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// An address that may not be reached; its text says what it is: `a metadata address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ForbiddenAddress(&'static str);

impl ForbiddenAddress {
    /// Whether the host of a URL is itself an address that may not be reached. Names are let through: where they
    /// lead is known when they are resolved.
    pub fn check_host(host: &str) -> Result<(), Self> {
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => Self::check(address),
            Err(_) => Ok(()),
        }
    }

    /// Those of a name's addresses that may be reached; fails where it has no others.
    pub fn reachable(addresses: impl IntoIterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, Self> {
        let (mut reachable, mut refused) = (Vec::new(), None);
        for address in addresses {
            match Self::check(address.ip()) {
                Ok(()) => reachable.push(address),
                Err(forbidden) => refused = Some(forbidden),
            }
        }
        match refused {
            Some(forbidden) if reachable.is_empty() => Err(forbidden),
            _ => Ok(reachable),
        }
    }

    fn check(address: IpAddr) -> Result<(), Self> {
        forbidden(address).map_or(Ok(()), |what| Err(Self(what)))
    }
}

/// Why an address may not be reached, if it may not.
fn forbidden(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => forbidden_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(inner) => forbidden_v4(inner),
            None if METADATA_V6.contains(&address) => Some("a metadata address"),
            None if address.is_unspecified() => Some("an unspecified address"),
            None if address.is_multicast() => Some("a multicast address"),
            None if address.is_unicast_link_local() => Some("a link-local address"),
            None => None,
        },
    }
}

fn forbidden_v4(address: Ipv4Addr) -> Option<&'static str> {
    if METADATA_V4.contains(&address) {
        Some("a metadata address")
    } else if address.is_link_local() {
        Some("a link-local address")
    } else if address.octets()[0] == 0 {
        Some("an unspecified address")
    } else if address.is_multicast() || address.is_broadcast() {
        Some("a multicast address")
    } else {
        None
    }
}

/// The IPv4 address that an IPv6 address leads to.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let last = Ipv4Addr::from((u32::from(segments[6]) << 16) | u32::from(segments[7]));
    let is_translated = segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    // `::1` and `::` are addresses of their own.
    let is_compatible = segments[..6] == [0; 6] && u32::from(last) > 1;
    if is_translated || is_compatible { Some(last) } else { address.to_ipv4_mapped() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_tell_secrets_or_are_nobodys_are_forbidden() {
        for text in [
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(forbidden(text.parse().unwrap()).is_some(), "{text}");
        }
    }

    #[test]
    fn the_users_own_networks_and_the_rest_are_allowed() {
        for text in [
            "127.0.0.1",
            "::1",
            "10.0.0.7",
            "192.168.1.1",
            "172.16.0.1",
            "fd12::1",
            "93.184.216.34",
            "2606:4700::1",
        ] {
            assert_eq!(forbidden(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn a_host_that_is_an_address_is_checked_as_one() {
        for host in ["169.254.169.254", "[fe80::1]", "0.0.0.0"] {
            assert!(ForbiddenAddress::check_host(host).is_err(), "{host}");
        }
        for host in ["127.0.0.1", "[::1]", "metadata.example"] {
            assert_eq!(ForbiddenAddress::check_host(host), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_name_is_reached_at_its_allowed_addresses_and_not_at_all_without_one() {
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 80);
        let (good, bad) = (address("10.0.0.7"), address("169.254.169.254"));
        assert_eq!(ForbiddenAddress::reachable([bad, good]), Ok(vec![good]));
        let refused = ForbiddenAddress::reachable([bad]).unwrap_err();
        assert_eq!(refused.to_string(), "a link-local address");
        assert_eq!(ForbiddenAddress::reachable([]), Ok(Vec::new()));
    }
}
