//! Leases.

use super::OpenStore;
use super::samples::source;
use crate::lease::Lease;

pub(super) fn one_at_a_time_holds_a_lease(open: OpenStore<'_>) {
    let (ours, theirs) = (open("leases"), open("leases"));
    let leases = [Lease::Sync(source(1)), Lease::Sync(source(2)), Lease::Fill, Lease::Index];
    let held: Vec<_> = leases.iter().map(|lease| ours.lease(lease).unwrap().unwrap()).collect();
    for lease in &leases {
        assert!(theirs.lease(lease).unwrap().is_none(), "{lease:?} is held");
        assert!(ours.lease(lease).unwrap().is_none(), "{lease:?} is held by the same process");
    }
    drop(held);
    for lease in &leases {
        assert!(theirs.lease(lease).unwrap().is_some(), "{lease:?} is free again");
    }
}
