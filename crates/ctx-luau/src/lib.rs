//! Luau scripts, run in sandboxed worker processes.
//!
//! A worker process holds a Luau VM and a pipe to its parent, and nothing else: whatever a script does beyond
//! computing (HTTP, files, calls of tools) is a host request over the pipe, which the parent handles. This is
//! the only crate that depends on mlua.

mod engine;
mod host;
mod kinds;
mod scripts;
mod syntax;
mod value;
mod vm;
mod world;

pub use engine::{
    DEPTH_MAX, Engine, EngineFigures, EngineSettings, HostError, HostHandler, LogLine, RunError,
    RunErrorKind, RunOutput, ScriptEntry, ScriptRun, worker_main,
};
pub use host::api_types;
pub use kinds::{GRACE, InlineAgent};
pub use scripts::{EnvironmentLookup, ScriptLimits, ScriptProblem, ScriptSettings, ScriptSummary, Scripts};
pub use syntax::{
    Binding, BindingKind, CLOSE_STRING, DOLLAR_IN_STRING, DefinedNames, KEYWORDS, LocalDeclaration,
    NEXT_IN_STRING, OPEN_STRING, Token, TokenKind, TokenTree,
};
pub use vm::{LogLevel, describe_undefined, execute_globals};
