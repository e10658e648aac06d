//! Starts worker processes on one thread that lives as long as the pool.
//!
//! Linux kills a worker when the thread that started it ends (`PR_SET_PDEATHSIG` follows the thread). A thread of the
//! runtime may end at any time; this one ends with the pool.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The program to start as a worker; it must call [`worker_main`](crate::worker_main) before it starts threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProgram {
    /// The executable.
    pub path: PathBuf,
    /// The arguments that make it a worker.
    pub arguments: Vec<OsString>,
}

impl WorkerProgram {
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

struct StartRequest {
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

/// A handle to the thread that starts workers.
#[derive(Debug)]
pub(crate) struct Starter {
    requests: mpsc::Sender<StartRequest>,
}

impl Starter {
    pub(crate) fn new(program: WorkerProgram) -> io::Result<Self> {
        let (requests, received) = mpsc::channel::<StartRequest>();
        thread::Builder::new().name(String::from("worker-starter")).spawn(move || {
            for request in received {
                let _inside = request.runtime.enter();
                // If the caller is gone, dropping the child ends the worker at once.
                drop(request.started.send(program.command().spawn()));
            }
        })?;
        Ok(Self { requests })
    }

    pub(crate) async fn start(&self) -> io::Result<Child> {
        let (started, child) = oneshot::channel();
        let starter_gone = || io::Error::other("the thread that starts workers has exited");
        self.requests
            .send(StartRequest { runtime: Handle::current(), started })
            .map_err(|_| starter_gone())?;
        child.await.map_err(|_| starter_gone())?
    }
}
