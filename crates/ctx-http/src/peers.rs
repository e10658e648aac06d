//! Per-client connection limit, so that one client cannot use up all connection slots.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Open connections by client; there are never more entries than connections.
#[derive(Clone)]
pub(crate) struct Peers {
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
    per_peer_max: usize,
}

/// A connection slot of one client; dropping it releases the slot.
pub(crate) struct PeerSlot {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    /// Allows each client `per_peer_max` connections.
    pub(crate) fn new(per_peer_max: usize) -> Self {
        Self { open: Arc::default(), per_peer_max }
    }

    /// Takes a slot for one more connection from this address; `None` at the limit.
    pub(crate) fn acquire(&self, address: IpAddr) -> Option<PeerSlot> {
        let peer = peer_of(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(peer).or_default();
        if *count >= self.per_peer_max {
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
    fn a_peer_gets_no_more_connections_than_its_limit() {
        let peers = Peers::new(2);
        let first = peers.acquire(ip("10.0.0.1")).unwrap();
        let _second = peers.acquire(ip("::ffff:10.0.0.1")).unwrap();
        assert!(peers.acquire(ip("10.0.0.1")).is_none());
        let _other = peers.acquire(ip("10.0.0.2")).unwrap();
        drop(first);
        assert!(peers.acquire(ip("10.0.0.1")).is_some());
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_peer() {
        let peers = Peers::new(1);
        let _one = peers.acquire(ip("2001:db8:1:2::1")).unwrap();
        assert!(peers.acquire(ip("2001:db8:1:2:ffff::9")).is_none());
        assert!(peers.acquire(ip("2001:db8:1:3::1")).is_some());
    }

    #[test]
    fn a_peer_without_connections_is_forgotten() {
        let peers = Peers::new(1);
        drop(peers.acquire(ip("10.0.0.1")).unwrap());
        assert!(peers.open.lock().unwrap().is_empty());
    }
}
