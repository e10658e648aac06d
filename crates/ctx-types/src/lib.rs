//! JSON Schema as Luau types, for the documentation of functions, the check of a script before it runs, and generated
//! declarations.
//!
//! Schemas are untrusted: wrong, endless or huge. Reading always ends, the output is valid Luau, and omitted parts are
//! `any` and reported. A type is never narrower than its schema, so that a valid value is never a misfit, with one
//! exception: a schema that describes fields or items without a `type` is read as a table or list.

mod call_forms;
mod check;
mod combine;
mod constant;
mod declaration_files;
mod declare;
mod function;
mod library;
mod merge;
mod model;
mod notes;
mod outline;
mod print;
mod reference;
mod schema_reader;

pub use check::{Literal, MismatchKind, PathStep, TypeMismatch};
pub use declaration_files::definitions;
pub use function::{Argument, Function};
pub use library::Library;
pub use model::{AdditionalFields, Constant, Field, NamedType, Notes, Table, Type, Types};
