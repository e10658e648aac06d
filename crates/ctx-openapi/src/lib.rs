//! OpenAPI descriptions as callable functions.
//!
//! `document` reads a description of any version and gives [`Operation`]s: all that is needed to call each, and
//! nothing of the document. `request` makes a request of an operation and its arguments, `response` a value of what
//! comes back, `auth` adds credentials, and `api` is the provider of it all.

#![allow(dead_code, reason = "until all of it is there")]

mod api;
mod auth;
mod client;
mod document;
mod operation;
mod request;
mod response;
mod settings;
mod survey;
mod whole;

pub use api::Api;
pub use auth::{Credential, Credentials};
pub use document::{InvalidPattern, Selection};
pub use settings::{ApiError, ApiLimits, ApiSettings, Spec};
pub use survey::Survey;
