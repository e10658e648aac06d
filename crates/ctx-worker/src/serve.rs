//! The worker side of the protocol: start-up, and the pipe to the parent.

use crate::confine::{confine, die_with_parent};
use crate::frame::{Frame, FrameKind, IncomingFrames, OutgoingFrames, PAYLOAD_BYTES_MAX, ProtocolViolation};
use crate::greeting::{Greeting, VERSION};
use rustix::io::Errno;
use std::cell::RefCell;
use std::process::ExitCode;

/// Bytes read in one call.
const READ_BYTES: usize = 64 << 10;

/// Runs this process as a worker: calls `prepare` before it is confined, and `serve` after, until the parent is gone.
/// The process must have no threads other than the caller and those that wait for it. Errors of either are written to
/// stderr, which the parent reads to find out why a worker ended.
pub fn worker_main<T>(
    prepare: impl FnOnce() -> Result<T, String>,
    serve: impl FnOnce(ParentPipe, T) -> Result<(), String>,
) -> ExitCode {
    let pipe = ParentPipe::default();
    let result = prepare_and_confine(&pipe, prepare)
        .and_then(|prepared| prepared.map_or(Ok(()), |prepared| serve(pipe, prepared)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = rustix::io::write(rustix::stdio::stderr(), message.as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Prepares and confines this process as the greeting of the parent says. `None` if the parent is gone.
fn prepare_and_confine<T>(
    pipe: &ParentPipe,
    prepare: impl FnOnce() -> Result<T, String>,
) -> Result<Option<T>, String> {
    die_with_parent().map_err(|error| error.to_string())?;
    let Ok(greeting) = pipe.receive(|frame| match frame.kind {
        FrameKind::Hello => frame.parse::<Greeting>(),
        _ => Err(ProtocolViolation::Order),
    }) else {
        return Ok(None);
    };
    let greeting =
        greeting.map_err(|violation| format!("the handshake failed: the parent sent {violation}"))?;
    if greeting.version != VERSION {
        return Err(String::from(
            "the program was replaced by another version while it was running; restart it",
        ));
    }
    let prepared = prepare()?;
    confine(greeting.address_space_bytes).map_err(|error| error.to_string())?;
    Ok(pipe.send(&Frame::new(FrameKind::Ready, VERSION)).is_ok().then_some(prepared))
}

/// Serves [`Pool::request`](crate::Pool::request) until the parent is gone: `handle` gets the JSON text and the bytes
/// of each job and returns those of its reply, which must fit into a frame.
pub fn serve_requests(
    pipe: ParentPipe,
    mut handle: impl FnMut(&[u8], Vec<u8>) -> (Vec<u8>, Vec<u8>),
) -> Result<(), String> {
    let mut input = Vec::new();
    loop {
        let received = pipe.receive(|frame| {
            input.extend_from_slice(frame.bytes);
            match frame.kind {
                FrameKind::Input => Ok(None),
                FrameKind::Job => Ok(Some(frame.json.to_vec())),
                _ => Err(ProtocolViolation::Order),
            }
        });
        let job = match received {
            Ok(Ok(Some(job))) => job,
            Ok(Ok(None)) => continue,
            Ok(Err(violation)) => return Err(violation.to_string()),
            Err(ParentGone) => return Ok(()),
        };
        let (json, bytes) = handle(&job, std::mem::take(&mut input));
        if json.len() + bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(String::from("the reply is too large"));
        }
        if pipe.send(&Frame { json: &json, bytes: &bytes, ..Frame::new(FrameKind::Done, 0) }).is_err() {
            return Ok(());
        }
    }
}

/// The pipe to the parent is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parent process has exited")]
pub struct ParentGone;

/// The worker's end of the pipe. A single thread reads and writes, both blocking.
#[derive(Debug, Default)]
pub struct ParentPipe {
    incoming: RefCell<IncomingFrames>,
    outgoing: RefCell<OutgoingFrames>,
}

impl ParentPipe {
    /// Writes a frame.
    pub fn send(&self, frame: &Frame<'_>) -> Result<(), ParentGone> {
        let mut outgoing = self.outgoing.try_borrow_mut().map_err(|_| ParentGone)?;
        outgoing.push(frame).map_err(|_| ParentGone)?;
        while !outgoing.pending().is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), outgoing.pending()) {
                Ok(length) => outgoing.mark_written(length),
                Err(Errno::INTR) => {}
                Err(_) => return Err(ParentGone),
            }
        }
        Ok(())
    }

    /// Waits for a frame and returns the result of `take` for it.
    pub fn receive<T>(&self, take: impl FnOnce(Frame<'_>) -> T) -> Result<T, ParentGone> {
        let mut incoming = self.incoming.try_borrow_mut().map_err(|_| ParentGone)?;
        loop {
            if let Some((frame, length)) = incoming.next_frame().map_err(|_| ParentGone)? {
                let value = take(frame);
                incoming.consume(length);
                return Ok(value);
            }
            let buffer = incoming.spare_buffer(READ_BYTES);
            match rustix::io::read(rustix::stdio::stdin(), rustix::buffer::spare_capacity(buffer)) {
                Ok(0) => return Err(ParentGone),
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(ParentGone),
            }
        }
    }
}
