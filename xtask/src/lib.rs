//! The tasks of `cargo xtask`, and utilities that `crates/ctx-bench` shares: running cargo and other
//! programs, a server process and a connection to it, npm packages.
//!
//! Depends on no crate of the product, so that `cargo xtask tidy` does not compile it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool for developers, not part of the product"
)]

mod ci;
mod clients;
mod codegen;
mod conformance;
mod dependencies;
mod http;
mod pictures;
mod programs;
mod run;
mod server;
mod tidy;
mod tools;
mod upstreams;

pub use http::HttpConnection;
pub use run::{output, release_binary, root, succeed, target, with_test_env};
pub use server::ServerProcess;
pub use tools::packages;

use anyhow::{Result, bail};
use run::cargo;

const USAGE: &str = "usage: cargo xtask <task>

  ci                 everything that must hold: format, tidy, lints, licences, tests, generated
                     pages, MCP conformance, MCP clients, documentation, the release binary on the
                     example, pictures
  test               the fast part of the tests
  clients [programs] programs made with the official MCP SDKs against our server, a server of theirs
                     that starts late behind ours, and (or only) the clients that people use (Claude Code, Codex, Gemini CLI, MCP Inspector) on what
                     `ctx connect` writes
  codegen [--check]  write the generated reference pages, or check that they are current
  conformance        the official MCP conformance suite against our server, twice in a row, and
                     against our client
  pictures [--check] [--binary PATH]
                     record the terminal session of the README and draw the diagrams, or check that the
                     committed pictures are current; builds the release binary if none is named
  tidy               rules about files and dependencies that no other tool holds
  tools              install what the checks need under target/tools: an S3 service (moto), MCP servers,
                     descriptions of functions, the type checker of Luau, the MCP conformance suite, MCP
                     clients, and Node for them where there is none
  bench [PART…]      measure: embed, engine, gateway, index, load, mcp, openapi, search, start … (all when
                     none is named); `bench load MINUTES` prolongs the mixed load
  bench retrieval --data DIR [--collection NAME] [--model fast|best|none] [--keep]
                     measure how well questions find their documents, over each collection in DIR:
                     a folder with corpus.jsonl, queries.jsonl and qrels.tsv, as BEIR has them;
                     --keep uses the index of the last time where there is one";

/// Runs the task given by the arguments.
pub fn dispatch(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["ci"] => ci::run_all(),
        ["test"] => ci::run_fast(),
        ["clients"] => clients::run().and_then(|()| programs::run()),
        ["clients", "programs"] => programs::run(),
        ["codegen"] => codegen::write_pages(),
        ["codegen", "--check"] => codegen::check_pages(),
        ["conformance"] => conformance::run(),
        ["pictures", options @ ..] => pictures::run(options),
        ["tidy"] => tidy::check(),
        ["tools"] => tools::install_all(),
        ["bench", parts @ ..] => bench(parts),
        _ => bail!("{USAGE}"),
    }
}

/// Runs the benchmarks in a release build.
fn bench(parts: &[&str]) -> Result<()> {
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "ctx-bench", "--"]);
    succeed(command.args(parts))
}
