//! The SSRF policy of every outgoing connection: the IP addresses it may use, depending on who named the host.
//!
//! Host names are checked at connection time, on the resolved addresses, so that DNS rebinding cannot bypass the check.
//! Nothing here does I/O: `ctx-net` asks [`AddressPolicy`] which addresses a request may use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Cloud metadata services outside the IPv4 link-local range: Alibaba, Azure, Oracle.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];

/// First two segments of the IPv6 networks of cloud metadata services: Amazon, Google.
const METADATA_V6: [[u16; 2]; 2] = [[0xfd00, 0x0ec2], [0xfd20, 0x00ce]];

/// Network distance of an address from this machine. Ordered: a greater scope is nearer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum NetworkScope {
    /// The public internet.
    #[default]
    Internet,
    /// A private network: RFC 1918, unique local, shared (CGNAT) and benchmarking addresses.
    Private,
    /// This machine.
    Loopback,
}

/// An address that the SSRF policy refuses; its text names the address class: `a metadata address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ForbiddenAddress(&'static str);

/// An SSRF policy: the addresses that one request may connect to.
///
/// - Link-local, cloud metadata, IPv6 transition and unusable addresses are always refused, unless trusted
///   configuration gives one as a literal IP address.
/// - A host named by configuration or a trusted script may be on loopback or a private network.
/// - A host named by a remote party (a redirect, OAuth metadata, a server URL in a downloaded OpenAPI document) is
///   never in a nearer network scope than that party: a public host can refer to public hosts only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressPolicy {
    nearest: NetworkScope,
    /// Literal IP address from trusted configuration; exempt from every check.
    named: Option<IpAddr>,
}

impl AddressPolicy {
    /// Policy for hosts named by the user's own configuration and scripts: all but the always refused addresses.
    pub const TRUSTED: Self = Self { nearest: NetworkScope::Loopback, named: None };

    /// Public addresses only: the policy for hosts named by an unknown party.
    pub const INTERNET: Self = Self { nearest: NetworkScope::Internet, named: None };

    /// Policy for the host of a URL in trusted configuration. A literal IP address is exempt from the checks. A host
    /// name is not: whoever controls its DNS can point it at any address.
    pub fn for_configured_host(host: &str) -> Self {
        Self { named: literal(host), ..Self::TRUSTED }
    }

    /// Policy for hosts named by a remote party in this scope (redirects, OAuth metadata, `$ref`).
    pub fn for_referrer(scope: NetworkScope) -> Self {
        Self { nearest: scope, named: None }
    }

    /// This policy, narrowed for hosts named in a response from `peer`: nothing nearer than the peer.
    #[must_use]
    pub fn referred_by(self, peer: IpAddr) -> Self {
        self.within(NetworkScope::of(peer))
    }

    /// This policy, narrowed to nothing nearer than `scope`.
    #[must_use]
    pub fn within(self, scope: NetworkScope) -> Self {
        Self { nearest: self.nearest.min(scope), ..self }
    }

    /// The nearest scope that this policy allows.
    pub fn nearest(self) -> NetworkScope {
        self.nearest
    }

    /// Checks the host of a URL without resolving it: a literal address or a `localhost` name. Other names are checked
    /// when they are resolved, by [`AddressPolicy::filter_allowed`].
    pub fn check_host(self, host: &str) -> Result<(), ForbiddenAddress> {
        match literal(host) {
            Some(address) => self.check(address),
            None if is_localhost(host) => self.check(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            None => Ok(()),
        }
    }

    /// Checks one address.
    pub fn check(self, address: IpAddr) -> Result<(), ForbiddenAddress> {
        if self.named == Some(address) {
            return Ok(());
        }
        match classify(address)? {
            scope if scope <= self.nearest => Ok(()),
            NetworkScope::Loopback => Err(ForbiddenAddress("a loopback address")),
            _ => Err(ForbiddenAddress("a private address")),
        }
    }

    /// The allowed ones of a name's resolved addresses; fails when all of them are refused.
    pub fn filter_allowed(
        self,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, ForbiddenAddress> {
        let (mut reachable, mut refused) = (Vec::new(), None);
        for address in addresses {
            match self.check(address.ip()) {
                Ok(()) => reachable.push(address),
                Err(forbidden) => refused = Some(forbidden),
            }
        }
        match refused {
            Some(forbidden) if reachable.is_empty() => Err(forbidden),
            _ => Ok(reachable),
        }
    }
}

impl NetworkScope {
    /// Scope of an address. An always refused one counts as private: only configuration can have named it.
    pub fn of(address: IpAddr) -> Self {
        classify(address).unwrap_or(Self::Private)
    }

    /// Scope of a name with these addresses: that of the farthest one.
    pub fn of_all(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        addresses.into_iter().map(Self::of).min().unwrap_or_default()
    }
}

/// Parses the host of a URL as a literal IP address.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether a name is reserved for loopback (RFC 6761).
fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Scope of an address, or why it is always refused.
fn classify(address: IpAddr) -> Result<NetworkScope, ForbiddenAddress> {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> Result<NetworkScope, ForbiddenAddress> {
    let [first, second, third, _] = address.octets();
    if METADATA_V4.contains(&address) {
        Err(ForbiddenAddress("a cloud metadata address"))
    } else if address.is_link_local() {
        Err(ForbiddenAddress("a link-local address"))
    } else if first == 0 {
        Err(ForbiddenAddress("an unspecified address"))
    } else if address.is_multicast() || address.is_broadcast() {
        Err(ForbiddenAddress("a multicast address"))
    } else if first >= 240 {
        Err(ForbiddenAddress("a reserved address"))
    } else if (first, second, third) == (192, 88, 99) {
        // 6to4 relay anycast: forwards a packet to the IPv4 address embedded in it.
        Err(ForbiddenAddress(TRANSLATED))
    } else if address.is_loopback() {
        Ok(NetworkScope::Loopback)
    } else if address.is_private()
        || (first == 100 && second & 0xc0 == 64)
        || (first == 198 && second & 0xfe == 18)
        || (first, second, third) == (192, 0, 0)
    {
        Ok(NetworkScope::Private)
    } else {
        Ok(NetworkScope::Internet)
    }
}

/// Address class of the IPv6 transition formats, which embed an IPv4 address.
const TRANSLATED: &str = "an IPv6 transition address (6to4, Teredo, SIIT or NAT64)";

fn classify_v6(address: Ipv6Addr) -> Result<NetworkScope, ForbiddenAddress> {
    let segments = address.segments();
    let last = Ipv4Addr::from((u32::from(segments[6]) << 16) | u32::from(segments[7]));
    let translated = Err(ForbiddenAddress(TRANSLATED));
    match segments {
        // IPv4-mapped: the same address in IPv6 notation.
        [0, 0, 0, 0, 0, 0xffff, ..] => classify_v4(last),
        // NAT64 (RFC 6052): DNS64 synthesizes these for public hosts only.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => match classify_v4(last)? {
            NetworkScope::Internet => Ok(NetworkScope::Internet),
            _ => translated,
        },
        // Before the IPv4-compatible pattern, which would match both.
        [0, 0, 0, 0, 0, 0, 0, 0] => Err(ForbiddenAddress("an unspecified address")),
        [0, 0, 0, 0, 0, 0, 0, 1] => Ok(NetworkScope::Loopback),
        // IPv4-compatible, SIIT, local-use NAT64 (RFC 8215), 6to4, Teredo. A refused embedded address gives the error.
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 1, ..] => {
            classify_v4(last).and(translated)
        }
        [0x2002, high, low, ..] => {
            classify_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))).and(translated)
        }
        [0x2001, 0, ..] => classify_v4(Ipv4Addr::from(!u32::from(last))).and(translated),
        [first, second, ..] if METADATA_V6.contains(&[first, second]) => {
            Err(ForbiddenAddress("a cloud metadata address"))
        }
        _ if address.is_multicast() => Err(ForbiddenAddress("a multicast address")),
        _ if address.is_unicast_link_local() => Err(ForbiddenAddress("a link-local address")),
        // Unique local, and the deprecated site-local range.
        [first, ..] if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 => Ok(NetworkScope::Private),
        _ => Ok(NetworkScope::Internet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const REFUSED: [(&str, &str); 33] = [
        ("169.254.169.254", "a link-local address"),
        ("169.254.0.1", "a link-local address"),
        ("169.254.170.2", "a link-local address"),
        ("100.100.100.200", "a cloud metadata address"),
        ("168.63.129.16", "a cloud metadata address"),
        ("192.0.0.192", "a cloud metadata address"),
        ("0.0.0.0", "an unspecified address"),
        ("0.1.2.3", "an unspecified address"),
        ("224.0.0.1", "a multicast address"),
        ("239.255.255.250", "a multicast address"),
        ("255.255.255.255", "a multicast address"),
        ("240.0.0.1", "a reserved address"),
        ("192.88.99.1", TRANSLATED),
        ("::", "an unspecified address"),
        ("fe80::1", "a link-local address"),
        ("febf::1", "a link-local address"),
        ("ff02::1", "a multicast address"),
        ("fd00:ec2::254", "a cloud metadata address"),
        ("fd00:ec2:1:2::1", "a cloud metadata address"),
        ("fd20:ce::254", "a cloud metadata address"),
        ("::ffff:169.254.169.254", "a link-local address"),
        ("::ffff:168.63.129.16", "a cloud metadata address"),
        ("::169.254.169.254", "a link-local address"),
        ("::8.8.8.8", TRANSLATED),
        ("::ffff:0:169.254.169.254", "a link-local address"),
        ("::ffff:0:8.8.8.8", TRANSLATED),
        ("64:ff9b::a9fe:a9fe", "a link-local address"),
        ("64:ff9b::10.0.0.1", TRANSLATED),
        ("64:ff9b:1::8.8.8.8", TRANSLATED),
        ("2002:a9fe:a9fe::1", "a link-local address"),
        ("2002:808:808::1", TRANSLATED),
        ("2001:0:808:808:0:0:5601:5601", "a link-local address"),
        ("2001:0:808:808:0:0:f7f7:f7f7", TRANSLATED),
    ];

    #[test]
    fn link_local_metadata_translated_and_unusable_addresses_are_refused_to_everybody() {
        for (text, expected) in REFUSED {
            for reach in [AddressPolicy::TRUSTED, AddressPolicy::INTERNET] {
                assert_eq!(reach.check(ip(text)).unwrap_err().to_string(), expected, "{text}");
            }
        }
    }

    #[test]
    fn an_address_is_as_near_as_the_network_that_it_is_in() {
        use NetworkScope::{Internet, Loopback, Private};
        for (text, scope) in [
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("10.0.0.7", Private),
            ("192.168.1.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("100.64.0.1", Private),
            ("100.127.255.255", Private),
            ("198.18.0.1", Private),
            ("192.0.0.8", Private),
            ("fd12::1", Private),
            ("fc00::1", Private),
            ("fec0::1", Private),
            ("::ffff:10.0.0.1", Private),
            ("172.32.0.1", Internet),
            ("100.63.0.1", Internet),
            ("100.128.0.1", Internet),
            ("93.184.216.34", Internet),
            ("2606:4700::1", Internet),
            ("2001:4860:4860::8888", Internet),
            ("64:ff9b::8.8.8.8", Internet),
            ("::ffff:8.8.8.8", Internet),
        ] {
            assert_eq!(classify(ip(text)), Ok(scope), "{text}");
            assert_eq!(AddressPolicy::TRUSTED.check(ip(text)), Ok(()), "{text}");
            assert_eq!(AddressPolicy::INTERNET.check(ip(text)).is_ok(), scope == Internet, "{text}");
        }
    }

    #[test]
    fn a_remote_party_refers_to_nothing_nearer_than_itself() {
        let near = [("127.0.0.1", 3), ("10.0.0.1", 2), ("8.8.8.8", 1)];
        for (peer, count) in near {
            let reach = AddressPolicy::TRUSTED.referred_by(ip(peer));
            let allowed = near.iter().filter(|(address, _)| reach.check(ip(address)).is_ok());
            assert_eq!(allowed.count(), count, "{peer}");
            // A later hop cannot widen the policy.
            assert_eq!(reach.referred_by(ip("127.0.0.1")), reach);
        }
        let refused = AddressPolicy::INTERNET.check(ip("127.0.0.1")).unwrap_err();
        assert_eq!(refused.to_string(), "a loopback address");
        let refused = AddressPolicy::INTERNET.check(ip("10.0.0.1")).unwrap_err();
        assert_eq!(refused.to_string(), "a private address");
        // A name with several addresses has the scope of the farthest.
        assert_eq!(NetworkScope::of_all([ip("127.0.0.1"), ip("8.8.8.8")]), NetworkScope::Internet);
        assert_eq!(NetworkScope::of_all([ip("127.0.0.1"), ip("10.0.0.1")]), NetworkScope::Private);
        assert_eq!(NetworkScope::of_all([]), NetworkScope::Internet);
    }

    #[test]
    fn configuration_names_an_address_by_writing_it_and_no_other() {
        for (text, _) in REFUSED {
            let host = if text.contains(':') { format!("[{text}]") } else { text.to_owned() };
            let reach = AddressPolicy::for_configured_host(&host);
            assert_eq!(reach.check(ip(text)), Ok(()), "{text}");
            assert_eq!(reach.check_host(&host), Ok(()), "{text}");
            let others = REFUSED.iter().filter(|(other, _)| reach.check(ip(other)).is_ok());
            assert_eq!(others.count(), 1, "{text}");
        }
        // A host name does not exempt the addresses that it resolves to.
        assert!(AddressPolicy::for_configured_host("metadata.example").check(ip("169.254.169.254")).is_err());
        // The exemption survives redirects to the same host.
        let reach = AddressPolicy::for_configured_host("169.254.7.7").referred_by(ip("169.254.7.7"));
        assert_eq!(reach.check(ip("169.254.7.7")), Ok(()));
        assert!(reach.check(ip("169.254.169.254")).is_err());
        assert!(reach.check(ip("127.0.0.1")).is_err());
    }

    #[test]
    fn a_host_that_is_an_address_is_checked_as_one() {
        for host in ["169.254.169.254", "[fe80::1]", "0.0.0.0", "[::ffff:a9fe:a9fe]"] {
            assert!(AddressPolicy::TRUSTED.check_host(host).is_err(), "{host}");
        }
        for host in ["127.0.0.1", "[::1]", "metadata.example", "localhost", "a.localhost."] {
            assert_eq!(AddressPolicy::TRUSTED.check_host(host), Ok(()), "{host}");
        }
        for host in ["127.0.0.1", "[::1]", "localhost", "LOCALHOST.", "a.b.localhost", "10.0.0.1"] {
            assert!(AddressPolicy::INTERNET.check_host(host).is_err(), "{host}");
        }
        for host in ["localhost.example", "mylocalhost", "8.8.8.8"] {
            assert_eq!(AddressPolicy::INTERNET.check_host(host), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_name_is_reached_at_its_allowed_addresses_and_not_at_all_without_one() {
        let address = |text: &str| SocketAddr::new(ip(text), 80);
        let (good, bad) = (address("10.0.0.7"), address("169.254.169.254"));
        assert_eq!(AddressPolicy::TRUSTED.filter_allowed([bad, good]), Ok(vec![good]));
        let refused = AddressPolicy::TRUSTED.filter_allowed([bad]).unwrap_err();
        assert_eq!(refused.to_string(), "a link-local address");
        assert_eq!(AddressPolicy::TRUSTED.filter_allowed([]), Ok(Vec::new()));
        assert!(AddressPolicy::INTERNET.filter_allowed([good]).is_err());
    }

    proptest! {
        #[test]
        fn no_ipv6_form_of_an_ipv4_address_reaches_further_than_the_address(bits in any::<u32>(), prefix in 0_usize..7) {
            let inner = Ipv4Addr::from(bits);
            let [a, b, c, d] = inner.octets().map(u16::from);
            let (high, low) = ((a << 8) | b, (c << 8) | d);
            let outer = match prefix {
                0 => Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                1 => Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                2 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                3 => Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                4 => Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                5 => Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
                _ => Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
            };
            // `::1` and `::` are not IPv4-compatible addresses.
            prop_assume!(prefix != 6 || bits > 1);
            for reach in [AddressPolicy::TRUSTED, AddressPolicy::INTERNET] {
                if reach.check(outer.into()).is_ok() {
                    prop_assert_eq!(reach.check(inner.into()), Ok(()));
                }
            }
        }
    }
}
