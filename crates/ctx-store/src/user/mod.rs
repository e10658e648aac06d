//! What belongs to the user, not to a workspace: files of their own in their state folder.

mod credentials;
mod trust;

pub use credentials::{CredentialLock, Credentials};
pub use trust::{Trust, TrustRecord};
