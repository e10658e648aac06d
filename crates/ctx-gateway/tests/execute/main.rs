//! `execute` with real worker processes, and the discovery of functions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "all of it is tests, and the harness that runs them"
)]

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;

type Test = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

/// Tests by name.
macro_rules! tests {
    ($module:ident: $($name:ident),* $(,)?) => {
        &[$((
            concat!(stringify!($module), "::", stringify!($name)),
            || Box::pin($crate::$module::$name()),
        )),*]
    };
}

mod bench;
mod calls;
mod discover;
mod endings;
mod files;
mod first_scripts;
mod golden;
mod kept;
mod results;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map(String::as_str) == Some(bench::WORKER) {
        return ctx_luau::worker_main();
    }
    let tests = [
        results::TESTS,
        calls::TESTS,
        discover::TESTS,
        endings::TESTS,
        golden::TESTS,
        kept::TESTS,
        files::TESTS,
        first_scripts::TESTS,
    ];
    let tests = tests.concat();
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| eprintln!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_selected = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    let mut failed = 0;
    for (name, test) in tests.iter().filter(|(name, _)| is_selected(name)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let passed = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(test()))).is_ok();
        eprintln!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
