//! Luau's own type checker as a program: `luau-check DEFINITIONS SCRIPT…` tells every problem of scripts as
//! `path:line: message`, and fails where there is one. What scripts require is not looked at.

use luau_analyzer_sys::NativeAnalyzer;
use std::ffi::c_int;
use std::process::ExitCode;

unsafe extern "C" {
    /// How many types may be reached from one; 0 is no bound. The beginning of the flag is its value.
    #[link_name = "_ZN4FInt20LuauTarjanChildLimitE"]
    static mut CHILD_LIMIT: c_int;
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(definitions) = arguments.next() else {
        eprintln!("usage: luau-check DEFINITIONS SCRIPT…");
        return ExitCode::from(2);
    };
    // SAFETY: nothing else runs yet, and the flag is an integer that is never read but through its name.
    unsafe { CHILD_LIMIT = 0 };
    let Some(declared) = text(&definitions) else {
        eprintln!("{definitions} cannot be read");
        return ExitCode::from(2);
    };
    let mut analyzer = NativeAnalyzer::new();
    analyzer.add_definitions(&declared);
    let mut problems = 0;
    for script in arguments {
        for problem in analyzer.check(&script, text, |_, _| None) {
            problems += 1;
            println!("{script}:{}: {}", problem.line + 1, problem.message.replace('\n', " "));
        }
    }
    if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
