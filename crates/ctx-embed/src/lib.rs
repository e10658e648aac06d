//! Text to vectors: two models, those that a caller brings, one tokenizer and the kernels; no I/O.
//!
//! The built-in models are part of the binary, laid out as the kernels read them: nothing is unpacked or copied
//! when they are first used, and what is never used is never read from the disk.

#[cfg(target_endian = "big")]
compile_error!("the built-in models are stored little endian and read where they lie");

mod bert;
mod best;
mod fast;
mod kernel;
mod local;
mod model;
mod parallel;
mod tokenizer;
pub mod vector;

pub use bert::Pooling;
pub use local::{LocalModel, Shape};
pub use model::Model;
pub use tokenizer::Tokenizer;
