//! The built-in models and the tokenizer against reference values.

mod local;
mod models;
mod notice;
mod tokenizer;
