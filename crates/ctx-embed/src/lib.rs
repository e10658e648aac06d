//! Text embeddings: two built-in models, models with the caller's weights, one tokenizer, and the SIMD kernels. No I/O.
//!
//! The built-in models are embedded in the binary in the memory layout of the kernels: nothing is unpacked or copied on
//! first use, and unused models are never read from disk.

#[cfg(target_endian = "big")]
compile_error!("the built-in models are stored in little-endian byte order and read in place");

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
pub use local::{BertDimensions, LocalModel};
pub use model::Model;
pub use tokenizer::Tokenizer;
