//! Requests from blocking code, driven by a background thread of this crate.

use crate::NetError;
use std::io;
use std::sync::{OnceLock, mpsc};
use tokio::runtime::{Builder, Handle};

/// Runs a future on the background thread and waits for its result. Works on any thread that may block, inside or
/// outside a runtime. Futures of several callers run concurrently, and connections stay pooled between calls.
pub fn block_on<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T, NetError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime_handle()?.spawn(async move {
        // Sending cannot fail: the receiver waits until the end.
        sender.send(future.await).ok();
    });
    receiver.recv().map_err(NetError::unbuildable)
}

fn runtime_handle() -> Result<&'static Handle, NetError> {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    if let Some(handle) = HANDLE.get() {
        return Ok(handle);
    }
    let started = start_runtime().map_err(NetError::unbuildable)?;
    // Another caller may have set the handle first. Then its thread is used, and this one stays idle.
    Ok(HANDLE.get_or_init(|| started))
}

fn start_runtime() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("ctx-net".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn futures_of_several_threads_run_side_by_side() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let waiting = std::thread::spawn(move || block_on(receiver).unwrap().unwrap());
        block_on(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            sender.send(7).unwrap();
        })
        .unwrap();
        assert_eq!(waiting.join().unwrap(), 7);
    }

    #[tokio::test]
    async fn a_future_that_panics_is_an_error() {
        let outcome =
            tokio::task::spawn_blocking(|| block_on(async { "as it should".parse::<u8>().unwrap() })).await;
        assert!(outcome.unwrap().is_err());
    }
}
