//! JSON Schema as Luau types: what a function takes and answers, for its documentation, for the check of a
//! script before it runs, and for generated declarations.
//!
//! A schema comes from outside and may be anything: wrong, endless or huge. Whatever it is, reading it ends,
//! what is printed is Luau, and what was too much is `any` and said to be left out. A type is never
//! narrower than its schema, so that what a schema admits is not called a misfit; only where a schema
//! describes fields or items without saying so, a table or a list is taken to be meant.

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
