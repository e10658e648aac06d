//! Data of the user rather than of a workspace, in files in the user's state folder.

mod credentials;
mod trust;

pub use credentials::{CredentialLock, Credentials};
pub use trust::{Trust, TrustRecord};
