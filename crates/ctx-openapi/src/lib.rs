//! OpenAPI descriptions as callable functions.
//!
//! `document` parses a description of any version into operations, which hold all that a call needs.
//! `request` builds a request from an operation and its arguments, `auth` adds credentials, `client` sends
//! it, `response` decodes the response, and `page` finds the next page. `load` fetches and caches
//! descriptions; `apis` keeps those of a workspace current in the background.

mod api;
mod apis;
mod auth;
mod client;
mod document;
mod file_response;
mod header;
mod interface;
mod lazy_schema;
mod load;
mod operation;
mod page;
mod request;
mod response;
mod self_contained;
mod settings;
mod survey;

pub use apis::{ApiOptions, ApiState, ApiStatus, Apis, TrustCheck};
pub use auth::{Credential, Credentials, InvalidCredentials};
pub use document::{InvalidPattern, Selection};
pub use interface::{Interface, InterfaceFunction};
pub use load::FileCache;
pub use settings::{ApiError, ApiLimits, ApiSettings, Spec};
#[doc(hidden)]
pub use survey::{Survey, SurveyedOperation, SurveyedRequest};
