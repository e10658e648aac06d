//! JSON Schema as Luau types, for the documentation of functions, the check of a script before it runs, and generated
//! declarations.
//!
//! Schemas are untrusted: wrong, endless or huge. Reading always ends, the output is valid Luau, and omitted parts are
//! `any` and reported. A type is never narrower than its schema, so that a valid value is never a misfit, with one
//! exception: a schema that describes fields or items without a `type` is read as a table or list.

mod check;
mod combine;
mod constant;
mod declare;
mod files;
mod forms;
mod function;
mod library;
mod model;
mod notes;
mod outline;
mod print;
mod read;
mod reference;
mod settle;

pub use check::{Literal, Misfit, Problem, Step};
pub use files::definitions;
pub use function::{Argument, Function};
pub use library::Library;
pub use model::{Constant, Field, NamedType, Notes, Rest, Table, Type, Types};
