//! Leases.

use super::samples::source;
use super::{HoldLease, OpenStore};
use crate::lease::Lease;

pub(super) fn one_at_a_time_holds_a_lease(open: OpenStore<'_>) {
    let (ours, theirs) = (open("leases"), open("leases"));
    let leases = [Lease::Sync(source(1)), Lease::Sync(source(2)), Lease::Embedding, Lease::Index];
    let held_leases: Vec<_> = leases.iter().map(|lease| ours.lease(lease).unwrap().unwrap()).collect();
    for lease in &leases {
        assert!(theirs.lease(lease).unwrap().is_none(), "{lease:?} is held");
        assert!(ours.lease(lease).unwrap().is_none(), "{lease:?} is held by the same process");
    }
    drop(held_leases);
    for lease in &leases {
        assert!(theirs.lease(lease).unwrap().is_some(), "{lease:?} is free again");
    }
}

pub(super) fn the_lease_of_a_killed_holder_is_free_again(open: OpenStore<'_>, hold: HoldLease<'_>) {
    let store = open("killed");
    for lease in [Lease::Sync(source(1)), Lease::Embedding, Lease::Index] {
        let kill = hold("killed", &lease);
        assert!(store.lease(&lease).unwrap().is_none(), "{lease:?} is held by somebody who lives");
        kill();
        assert!(store.lease(&lease).unwrap().is_some(), "{lease:?} is free");
    }
}
