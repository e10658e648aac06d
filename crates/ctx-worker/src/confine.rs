//! The sandbox of a worker process: seccomp, resource limits (rlimit) and closed descriptors. Nothing can undo it.
//!
//! The parent starts a worker with an empty environment, in `/`, with pipes for stdin, stdout and stderr. This module
//! does the rest before the worker reads its first job: no other descriptors, files, processes, privileges or memory
//! beyond its limit, and only a short list of system calls. On systems other than Linux a worker has only the limits
//! and the empty environment, which is no sandbox: such systems are for trying things out.

use std::io;

/// Why a worker could not be confined. Such a worker runs no job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfineError {
    #[error("cannot set a resource limit: {0}")]
    Limit(io::Error),
    #[cfg(target_os = "linux")]
    #[error("cannot isolate the process from other processes: {0}")]
    Process(io::Error),
    #[cfg(target_os = "linux")]
    #[error("cannot install the seccomp filter: {0}")]
    Filter(String),
}

/// Confines the whole process, irrevocably.
pub(crate) fn confine(address_space_bytes: u64) -> Result<(), ConfineError> {
    #[cfg(target_os = "linux")]
    linux::close_inherited_descriptors();
    set_limits(address_space_bytes).map_err(|error| ConfineError::Limit(error.into()))?;
    #[cfg(target_os = "linux")]
    {
        linux::forbid_memory_reads().map_err(|error| ConfineError::Process(error.into()))?;
        linux::install_seccomp_filter()?;
    }
    Ok(())
}

/// Makes the kernel kill this process when its parent ends (`PR_SET_PDEATHSIG`).
///
/// Called before anything else. A parent that ended even earlier is noticed by the end of the pipe, because no job can
/// have arrived.
pub(crate) fn die_with_parent() -> Result<(), ConfineError> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| ConfineError::Process(error.into()))?;
    Ok(())
}

fn set_limits(address_space_bytes: u64) -> rustix::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// The descriptors stdin, stdout and stderr.
    const DESCRIPTORS: u64 = 3;
    let limits = [
        (Resource::As, address_space_bytes),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nofile, DESCRIPTORS),
        (Resource::Nproc, 0),
    ];
    for (resource, limit) in limits {
        let allowed = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
        setrlimit(resource, Rlimit { current: Some(allowed), maximum: Some(allowed) })?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use super::ConfineError;
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    use seccompiler::SeccompCmpArgLen::Dword;
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        apply_filter_all_threads,
    };
    use std::collections::BTreeMap;

    /// System calls that are allowed with any arguments: for allocation, waiting, clocks, panics and exit.
    const ALLOWED: &[libc::c_long] = &[
        libc::SYS_brk,
        libc::SYS_clock_getres,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_gettimeofday,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_sigaltstack,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_time,
    ];

    /// Descriptors below this are closed one by one where the kernel lacks `close_range`.
    const DESCRIPTORS_MAX: libc::c_int = 65_536;

    /// Closes every inherited descriptor except stdin, stdout and stderr.
    #[allow(unsafe_code)]
    pub(super) fn close_inherited_descriptors() {
        const FIRST: libc::c_int = 3;
        // SAFETY: no code in this process owns these descriptors: a worker opens none, and this is the first thing that
        // it does.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_int::MAX, 0) };
        if closed == 0 {
            return;
        }
        for descriptor in FIRST..DESCRIPTORS_MAX {
            // SAFETY: as above; kernels before 5.9 have no other way.
            unsafe { libc::close(descriptor) };
        }
    }

    /// Forbids other processes to read its memory (`PR_SET_DUMPABLE`), which may hold secrets of a job. Only root still
    /// can.
    pub(super) fn forbid_memory_reads() -> rustix::io::Result<()> {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
    }

    /// Installs the seccomp filter for all threads.
    ///
    /// Other system calls fail with `EPERM` instead of killing the process: C libraries differ in the harmless calls
    /// they try (to read the file of a time zone, to name a memory mapping) and continue without them.
    pub(super) fn install_seccomp_filter() -> Result<(), ConfineError> {
        let filter_error = |error: seccompiler::BackendError| ConfineError::Filter(error.to_string());
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
        let is =
            |argument: u8, value: i32| SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, value as u64);
        let has = |argument: u8, mask: i32, value: i32| {
            SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(mask as u64), value as u64)
        };
        let mut allow = |call: libc::c_long, conditions: Vec<_>| {
            let conditions: Result<Vec<_>, _> = conditions.into_iter().collect();
            let rule = SeccompRule::new(conditions?)?;
            rules.entry(call).or_default().push(rule);
            Ok::<_, seccompiler::BackendError>(())
        };
        let restricted = [
            (libc::SYS_read, vec![is(0, libc::STDIN_FILENO)]),
            (libc::SYS_write, vec![is(0, libc::STDOUT_FILENO)]),
            (libc::SYS_write, vec![is(0, libc::STDERR_FILENO)]),
            // Writes the messages of panics.
            (libc::SYS_writev, vec![is(0, libc::STDERR_FILENO)]),
            // Anonymous memory that is not executable.
            (
                libc::SYS_mmap,
                vec![has(2, libc::PROT_EXEC, 0), has(3, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS)],
            ),
            (libc::SYS_mprotect, vec![has(2, libc::PROT_EXEC, 0)]),
            // `abort` signals this process with it. No other process can be signalled.
            (libc::SYS_tgkill, vec![is(0, std::process::id() as i32)]),
        ];
        for (call, conditions) in restricted {
            allow(call, conditions).map_err(filter_error)?;
        }
        let architecture = std::env::consts::ARCH.try_into().map_err(filter_error)?;
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let filter =
            SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture).map_err(filter_error)?;
        let program = BpfProgram::try_from(filter).map_err(filter_error)?;
        apply_filter_all_threads(&program).map_err(|error| ConfineError::Filter(error.to_string()))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    const INSIDE: &str = "confine::tests::inside_nothing_can_be_reached";

    /// The sandbox is irrevocable, so the test runs in a process of its own: this test binary with one test.
    #[test]
    fn a_confined_process_reaches_nothing() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", INSIDE, "--ignored", "--nocapture", "--test-threads=1"])
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
        assert!(stdout.contains("1 passed"), "{stdout}");
    }

    #[test]
    #[ignore = "confines its whole process; run by the test above"]
    #[allow(unsafe_code)]
    fn inside_nothing_can_be_reached() {
        use rustix::io::Errno;
        use rustix::process::{Signal, getppid, kill_process};
        use std::net::{TcpListener, TcpStream, UdpSocket};
        use std::os::unix::net::UnixStream;
        const ADDRESS_SPACE: u64 = 1 << 30;
        let denied = |error: std::io::Error| {
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        };
        let parent = getppid().unwrap();
        let kept_open = std::fs::File::open("/proc/self/status").unwrap();
        super::confine(ADDRESS_SPACE).unwrap();

        denied(std::fs::read("/etc/passwd").unwrap_err());
        denied(std::fs::write("/tmp/confined", "x").unwrap_err());
        denied(std::fs::read_dir("/").unwrap_err());
        denied(std::fs::metadata("/").unwrap_err());
        denied(std::fs::remove_file("/tmp/confined").unwrap_err());
        denied(TcpStream::connect("127.0.0.1:1").unwrap_err());
        denied(TcpListener::bind("127.0.0.1:0").unwrap_err());
        denied(UdpSocket::bind("127.0.0.1:0").unwrap_err());
        denied(UnixStream::pair().unwrap_err());
        assert!(Command::new("/bin/true").spawn().is_err());
        assert!(std::thread::Builder::new().spawn(|| ()).is_err());
        // A file that was open before is closed, and `read` of its descriptor is denied too.
        denied(std::io::Read::read(&mut &kept_open, &mut [0; 8]).unwrap_err());
        std::mem::forget(kept_open);
        assert_eq!(kill_process(parent, Signal::CONT), Err(Errno::PERM));
        // SAFETY: asks for executable memory and for another process; the kernel refuses both.
        unsafe {
            let (length, code) = (4_096, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mapped = libc::mmap(std::ptr::null_mut(), length, code, flags, -1, 0);
            assert_eq!(mapped, libc::MAP_FAILED);
            assert_eq!(libc::fork(), -1);
            assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0), -1);
        }

        // Computing still works: allocation, caught panics, clocks; the memory limit holds.
        let large = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert_eq!(large.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 64 << 20);
        assert!(std::panic::catch_unwind(|| panic!("caught")).is_err());
        let now = std::time::Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(now.elapsed() > std::time::Duration::ZERO);
        assert!(Vec::<u8>::new().try_reserve_exact(2 << 30).is_err());
        let set = std::collections::HashSet::from(["hashed with random keys"]);
        assert_eq!(set.len(), 1);
    }
}
