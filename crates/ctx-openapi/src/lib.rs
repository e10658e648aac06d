//! OpenAPI descriptions as callable functions.
//!
//! `document` reads a description of any version and gives operations: all that is needed to call each, and
//! nothing of the document. `request` makes a request of an operation and its arguments, `response` a value of what
//! comes back, `auth` adds credentials, and `api` is all operations of one. `load` gets descriptions and keeps what
//! they were made into; `apis` has it done in the background, for all APIs of a workspace.

mod api;
mod apis;
mod auth;
mod client;
mod document;
mod fragment;
mod header;
mod interface;
mod kept;
mod load;
mod operation;
mod page;
mod request;
mod response;
mod settings;
mod survey;
mod whole;

pub use apis::{ApiOptions, ApiState, ApiStatus, Apis, TrustCheck};
pub use auth::{Credential, Credentials, InvalidCredentials};
pub use document::{InvalidPattern, Selection};
pub use interface::{Interface, InterfaceFunction};
pub use settings::{ApiError, ApiLimits, ApiSettings, Spec};
#[doc(hidden)]
pub use survey::{Sent, Survey, Surveyed};
