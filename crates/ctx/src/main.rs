//! The `ctx` executable.

fn main() -> std::process::ExitCode {
    ctx::main()
}
