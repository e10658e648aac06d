//! A test harness with a `main` of its own, for test programs that are also their own workers.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;

/// A test and its name.
pub(crate) type Test = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

/// Tests by name.
macro_rules! tests {
    ($module:ident: $($name:ident),* $(,)?) => {
        &[$((
            concat!(stringify!($module), "::", stringify!($name)),
            || Box::pin($crate::$module::$name()),
        )),*]
    };
}

/// Runs the tests that the arguments name, each on a runtime of its own.
pub(crate) fn run(tests: &[Test], arguments: &[String]) -> ExitCode {
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
