//! Per-client connection limit, so that one client cannot use up all connection slots.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Open connections by client; there are never more entries than connections.
#[derive(Clone)]
pub(crate) struct Peers {
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
    each_max: usize,
}

/// A connection slot of one client; dropping it releases the slot.
pub(crate) struct PeerSlot {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    /// Allows each client `each_max` connections.
    pub(crate) fn new(each_max: usize) -> Self {
        Self { open: Arc::default(), each_max }
    }

    /// Takes a slot for one more connection from this address; `None` at the limit.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<PeerSlot> {
        let peer = peer_of(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(peer).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        Some(PeerSlot { peers: self.clone(), peer })
    }
}

impl Drop for PeerSlot {
    fn drop(&mut self) {
        let mut open = self.peers.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

/// The client that an address counts for. IPv6 addresses count by their /64 network, which usually belongs to
/// one host.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_peer_has_its_share_and_no_more() {
        let peers = Peers::new(2);
        let first = peers.admit(ip("10.0.0.1")).unwrap();
        let _second = peers.admit(ip("::ffff:10.0.0.1")).unwrap();
        assert!(peers.admit(ip("10.0.0.1")).is_none());
        let _other = peers.admit(ip("10.0.0.2")).unwrap();
        drop(first);
        assert!(peers.admit(ip("10.0.0.1")).is_some());
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_peer() {
        let peers = Peers::new(1);
        let _one = peers.admit(ip("2001:db8:1:2::1")).unwrap();
        assert!(peers.admit(ip("2001:db8:1:2:ffff::9")).is_none());
        assert!(peers.admit(ip("2001:db8:1:3::1")).is_some());
    }

    #[test]
    fn nothing_is_remembered_of_those_who_left() {
        let peers = Peers::new(1);
        drop(peers.admit(ip("10.0.0.1")).unwrap());
        assert!(peers.open.lock().unwrap().is_empty());
    }
}
