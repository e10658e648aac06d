//! Scripts: one engine that runs Luau in worker processes.
//!
//! A worker holds a Luau VM and a pipe, and nothing else. What a script wants from the world is a
//! question on the pipe, which the parent answers. This is the only crate that knows mlua.

mod engine;
mod host;
mod kinds;
mod scripts;
mod syntax;
mod value;
mod vm;
mod world;

pub use engine::{
    Completed, DEPTH_MAX, Engine, EngineFigures, EngineSettings, Entry, LogLine, Refusal, RunError,
    RunErrorKind, ScriptRun, World, worker_main,
};
pub use host::api_types;
pub use kinds::{GRACE, InlineAgent};
pub use scripts::{Described, Environment, ScriptLimits, ScriptProblem, ScriptSettings, Scripts};
pub use syntax::{
    Binding, BindingKind, CLOSE_STRING, DOLLAR_IN_STRING, DefinedNames, KEYWORDS, Local, NEXT_IN_STRING,
    OPEN_STRING, Token, TokenKind, TokenTree,
};
pub use vm::{LogLevel, describe_undefined, execute_globals};
