//! Starts worker processes, from one thread that lives as long as the engine.
//!
//! The kernel ends a worker when the thread that started it ends. A thread of the runtime may end at any
//! time; this one ends with the engine, and the workers with it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Which program a worker is.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<OsString>,
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

struct Request {
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

/// The thread, and the way to it.
#[derive(Debug)]
pub(super) struct Starter {
    requests: mpsc::Sender<Request>,
}

impl Starter {
    pub(super) fn new(program: Program) -> io::Result<Self> {
        let (requests, received) = mpsc::channel::<Request>();
        thread::Builder::new().name(String::from("worker-starter")).spawn(move || {
            for request in received {
                let _inside = request.runtime.enter();
                // Whoever asked may have gone: then the worker ends at once.
                drop(request.started.send(program.command().spawn()));
            }
        })?;
        Ok(Self { requests })
    }

    pub(super) async fn start(&self) -> io::Result<Child> {
        let (started, child) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts workers has ended");
        self.requests.send(Request { runtime: Handle::current(), started }).map_err(|_| gone())?;
        child.await.map_err(|_| gone())?
    }
}
