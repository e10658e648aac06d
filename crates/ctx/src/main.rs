//! `ctx`, the Context Harness.

fn main() -> std::process::ExitCode {
    ctx::main()
}
