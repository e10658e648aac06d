//! System call tracing with `strace`: programs run, connections, files opened.

use ctx_testkit::wait_until;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// System calls that start a program, connect a socket or open a file.
const TRACED_CALLS: &str = "trace=execve,execveat,connect,open,openat,openat2,creat";

/// Prefixes of system files that every program opens.
const SYSTEM_PATHS: [&str; 9] =
    ["/dev/", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/", "/lib", "/proc/", "/sys/", "/usr/", "pipe:"];

/// The allow-list of programs and folders, besides system files.
pub(crate) struct AllowList {
    /// Programs that may be run.
    pub(crate) programs: Vec<PathBuf>,
    /// Folders that may be read.
    pub(crate) folders: Vec<PathBuf>,
}

/// Wraps a command in `strace`, which writes a file `log.PID` for each process. With `-D` the command stays the direct
/// child, so that it can be sent signals.
pub(crate) fn under_strace(command: &Command, log: &Path) -> Command {
    let mut traced = Command::new("strace");
    traced.args(["-D", "-ff", "-q", "-y", "--seccomp-bpf", "-e", TRACED_CALLS, "-o"]).arg(log).arg("--");
    traced.arg(command.get_program()).args(command.get_args()).env_clear();
    traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        traced.current_dir(folder);
    }
    traced
}

/// The lines of the logs that violate the allow-list; deletes the logs.
pub(crate) fn violations(log: &Path, process_id: u32, allowed: &AllowList) -> Vec<String> {
    let own = log.with_extension(process_id.to_string());
    let ended = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().any(|line| line.starts_with("+++ "))
    };
    wait_until("the tracer has written everything", || ended(&own));
    let folder = fs::read_dir(log.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let mut found = Vec::new();
    for path in folder.filter(|path| path.file_stem() == log.file_stem() && path.extension().is_some()) {
        // The log of a worker that is killed with the program may be completed a moment later.
        wait_until("the tracer has written everything", || ended(&path));
        let text = fs::read_to_string(&path).unwrap();
        assert!(path != own || text.contains("execve("), "nothing was traced:\n{text}");
        found.extend(text.lines().filter(|line| is_violation(line, allowed)).map(str::to_owned));
        fs::remove_file(path).unwrap();
    }
    found
}

fn is_violation(call: &str, allowed: &AllowList) -> bool {
    let Some((call, result)) = call.rsplit_once(" = ") else { return false };
    if call.starts_with("connect") {
        // A failed attempt is a violation, too.
        return true;
    }
    if result.starts_with('-') || result.starts_with('?') {
        return false;
    }
    if call.starts_with("exec") {
        let program = call.split('"').nth(1).unwrap_or("?");
        return !allowed.programs.iter().any(|allowed| allowed == Path::new(program));
    }
    // `-y` prints the returned descriptor with its resolved path: `3</path>`.
    let Some((_, path)) = result.split_once('<') else { return true };
    let path = path.trim_end().trim_end_matches('>').trim_end_matches("(deleted)");
    let is_system = SYSTEM_PATHS.iter().any(|start| path.starts_with(start));
    !is_system && !allowed.folders.iter().any(|folder| Path::new(path).starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_is_told_apart() {
        let allowed = AllowList { programs: vec!["/bin/ctx".into()], folders: vec!["/w".into()] };
        for (line, violates) in [
            (r#"execve("/bin/ctx", ["ctx"], 0x7 /* 3 vars */) = 0"#, false),
            (r#"execve("/bin/sh", ["sh"], 0x7 /* 3 vars */) = 0"#, true),
            (r#"execve("/bin/sh", ["sh"], 0x7 /* 3 vars */) = -1 ENOENT (No such file or directory)"#, false),
            (r#"openat(AT_FDCWD</w>, "docs", O_RDONLY) = 3</w/docs>"#, false),
            (r#"openat(AT_FDCWD</w>, "docs/link", O_RDONLY) = 3</home/u/.ssh/id>"#, true),
            (r#"openat(AT_FDCWD</w>, "x", O_RDONLY) = -1 ENOENT (No such file or directory)"#, false),
            (r#"openat(AT_FDCWD</w>, "/usr/lib/x", O_RDONLY) = 3</usr/lib/x>"#, false),
            (
                r#"connect(3<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(80)}, 16) = -1 EINPROGRESS (x)"#,
                true,
            ),
            (r#"+++ exited with 0 +++"#, false),
        ] {
            assert_eq!(is_violation(line, &allowed), violates, "{line}");
        }
    }
}
