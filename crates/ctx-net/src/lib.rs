//! Outbound HTTP: the only crate that knows reqwest and rustls.
//!
//! Every request is sent by a [`Client`], under the SSRF policy (`ctx_core::Reach`) of the party that named its host.
//! Literal addresses are checked before anything is sent, host names when they are resolved, and each redirect is a
//! request of its own ([`RedirectChain`]). Bodies are read up to a limit.
//!
//! Callers (scripts, APIs, upstream MCP servers, JWKS, embedding servers, buckets, git) choose the policy, decide about
//! redirects and word the errors.

mod blocking;
mod client;
mod error;
mod redirect;
mod request;
mod resolve;
mod response;
mod retry;
mod tls;

pub use blocking::block_on;
pub use client::{Client, ClientOptions, FixedProxy, InvalidProxy, Proxy};
pub use error::{ForbiddenHost, ForbiddenTarget, NetError, NetErrorKind};
pub use redirect::{CrossOriginHeaders, RedirectChain, UnreadableLocation, is_downgrade};
pub use request::{Request, display_url};
pub use resolve::{HostError, ResolveError, resolve, scope_of_host};
pub use response::{BodyError, Response};
pub use retry::retry_after;
