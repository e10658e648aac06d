//! Engines, scripts and host APIs for the tests.

use async_trait::async_trait;
use ctx_luau::{
    Engine, EngineSettings, HostError, HostHandler, LogLevel, RunError, RunOutput, ScriptEntry, ScriptRun,
};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) const WORKER: &str = "__worker";
pub(crate) const FAKE: &str = "__fake";
pub(crate) const PARENT: &str = "__parent";

/// Deadline of scripts that end by themselves, however busy the machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Deadline of scripts that do not end by themselves.
pub(crate) const SHORT: Duration = Duration::from_millis(300);
/// Time after the deadline by which a run must have ended. Documented are 250 ms; a busy machine gets more.
pub(crate) const LATE: Duration = Duration::from_secs(2);

pub(crate) fn settings(arguments: &[&str]) -> EngineSettings {
    let arguments = arguments.iter().map(Into::into).collect();
    EngineSettings::new(std::env::current_exe().unwrap(), arguments)
}

pub(crate) fn engine() -> Engine {
    Engine::new(settings(&[WORKER])).unwrap()
}

pub(crate) fn script(source: &str, time: Duration) -> ScriptRun {
    ScriptRun {
        chunk_name: String::from("test.lua"),
        source: source.as_bytes().into(),
        entry: ScriptEntry::Chunk,
        arguments: Vec::new(),
        config: None,
        apis: ["context", "env", "log", "parallel", "sdk"].map(String::from).to_vec(),
        deadline: Instant::now() + time,
        memory_bytes: 64 << 20,
        result_bytes: 1 << 20,
        log_bytes: 256 << 10,
        depth: 0,
    }
}

pub(crate) async fn run(engine: &Engine, source: &str, time: Duration) -> Result<RunOutput, RunError> {
    engine.run(&script(source, time), &TestWorld::default()).await
}

pub(crate) async fn value(engine: &Engine, source: &str) -> Value {
    run(engine, source, LONG).await.unwrap().value
}

/// Waits until another process or task has done something.
pub(crate) async fn until(condition: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "not within a minute: {condition}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Answers `env.get` after a delay, or never.
#[derive(Default)]
pub(crate) struct TestWorld {
    pub(crate) delay: Duration,
    pub(crate) open: AtomicUsize,
    pub(crate) open_max: AtomicUsize,
    pub(crate) logged: Mutex<Vec<String>>,
}

impl TestWorld {
    pub(crate) fn never_answering() -> Self {
        Self { delay: Duration::MAX, ..Self::default() }
    }
}

/// Counts an open host request until its future is dropped.
struct OpenGuard<'a>(&'a AtomicUsize);

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl HostHandler for TestWorld {
    async fn handle(
        &self,
        method: &str,
        arguments: Value,
        bytes: Vec<u8>,
    ) -> Result<(Value, Vec<u8>), HostError> {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        let _open = OpenGuard(&self.open);
        self.open_max.fetch_max(open, Ordering::SeqCst);
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        match method {
            "env.get" | "ask" => Ok((json!("answer"), Vec::new())),
            "echo" => Ok((arguments, bytes)),
            "call" => Ok((arguments["arguments"].clone(), bytes)),
            _ => Err(HostError::new("unknown", format!("nobody knows of {method}"))),
        }
    }

    fn log(&self, _level: LogLevel, message: &str) {
        self.logged.lock().unwrap().push(message.to_owned());
    }
}
