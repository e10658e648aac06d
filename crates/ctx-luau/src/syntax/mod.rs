//! Static analysis of a script's source: tokens, brackets and the bindings of names.
//!
//! The check before a run and the VM both use it, so that they agree. Sources are untrusted: nothing here
//! recurses with their nesting, and everything takes linear time.

mod annotations;
mod bindings;
mod brackets;
mod functions;
mod lex;
mod names;
mod promises;
mod tree;

pub use bindings::{Binding, BindingKind, LocalDeclaration};
pub use lex::{CLOSE_STRING, DOLLAR_IN_STRING, NEXT_IN_STRING, OPEN_STRING, Token, TokenKind};
pub use names::DefinedNames;
pub(crate) use promises::{PROMISES_FIELD, mark_promise_calls, may_use_promises};
pub use tree::{KEYWORDS, TokenTree};
