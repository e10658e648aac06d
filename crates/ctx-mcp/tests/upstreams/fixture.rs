//! The fixture of the tests: upstreams of the test server, and a catalog of their tools.

use async_trait::async_trait;
use ctx_core::{
    Call, Caller, Catalog, Identifier, Output, Peer, Progress, Question, QuestionError, QuestionKind,
    Redactor, Secret, ToolError,
};
use ctx_mcp::{
    DefinitionChangePolicy, DefinitionStore, ReaperProgram, ServerCommand, StartMode, ToolFilter, Transport,
    UpstreamLimits, UpstreamOptions, UpstreamSettings, UpstreamState, Upstreams,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const SERVER: &str = "__server";
pub(crate) const REAPER: &str = "__reaper";
pub(crate) const PARENT: &str = "__parent";
/// A secret with invisible characters, which escaping changes.
pub(crate) const INVISIBLE_SECRET: &str = "key\u{200b}-\u{202e}4712";

pub(crate) fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

pub(crate) fn settings(name: &str, kind: &str, file: &Path) -> UpstreamSettings {
    let program = program();
    UpstreamSettings {
        name: Identifier::sanitize(name),
        transport: Transport::Stdio(ServerCommand {
            program: program.into(),
            arguments: vec![SERVER.into(), kind.into(), file.into()],
            environment: vec![
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                ("TOKEN".into(), "t".into()),
            ],
            directory: "/".into(),
        }),
        start: StartMode::Eager,
        exposed: false,
        tools: ToolFilter::default(),
        changes: DefinitionChangePolicy::Report,
        limits: UpstreamLimits::default(),
    }
}

pub(crate) struct UpstreamFixture {
    pub(crate) upstreams: Upstreams,
    pub(crate) changes: Arc<AtomicUsize>,
    /// The file in which servers note what they do.
    pub(crate) file: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl UpstreamFixture {
    /// One upstream, `up`, of this kind, after its first attempt to connect.
    pub(crate) async fn of(kind: &str) -> Self {
        Self::with(kind, |_| {}).await
    }

    pub(crate) async fn with(kind: &str, change: impl FnOnce(&mut UpstreamSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("noted");
        let mut settings = settings("up", kind, &file);
        change(&mut settings);
        let mut fixture = Self::start(settings, file, None);
        fixture.upstreams.wait_for_first_attempts().await;
        fixture._folder = Some(folder);
        fixture
    }

    /// Starts one upstream with a memory, without waiting for it.
    pub(crate) fn start(
        settings: UpstreamSettings,
        file: PathBuf,
        memory: Option<Arc<dyn DefinitionStore>>,
    ) -> Self {
        let changes = Arc::new(AtomicUsize::new(0));
        let counted = changes.clone();
        let on_change = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let upstreams =
            Upstreams::start(vec![settings], UpstreamOptions { definitions: memory, ..options(on_change) });
        Self { upstreams, changes, file, _folder: None }
    }

    pub(crate) fn state(&self) -> UpstreamState {
        self.upstreams.statuses().remove(0).state
    }

    pub(crate) fn reason(&self) -> String {
        match self.state() {
            UpstreamState::Failed { reason, .. } => reason,
            other => panic!("it should have failed, and is {other:?}"),
        }
    }

    pub(crate) fn count_noted(&self, what: &str) -> usize {
        let notes = std::fs::read_to_string(&self.file).unwrap_or_default();
        notes.lines().filter(|line| *line == what).count()
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let builder = Catalog::builder();
        self.upstreams
            .providers()
            .into_iter()
            .fold(builder, |builder, provider| builder.provider(provider))
            .build()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Output, ToolError> {
        self.call_as(tool, arguments, Arc::new(RecordingPeer::default())).await
    }

    pub(crate) async fn call_as(
        &self,
        tool: &str,
        arguments: Value,
        person: Arc<RecordingPeer>,
    ) -> Result<Output, ToolError> {
        let call = Call::new(self.catalog(), Caller::Cli).with_peer(person);
        Catalog::call(&format!("up.{tool}"), arguments, call).await
    }
}

pub(crate) fn options(on_change: Arc<dyn Fn() + Send + Sync>) -> UpstreamOptions {
    UpstreamOptions {
        name: "tests".to_owned(),
        version: "1".to_owned(),
        reaper: ReaperProgram { path: program(), arguments: vec![REAPER.into()] },
        redactor: Redactor::new([Secret::new("licence-4711"), Secret::new(INVISIBLE_SECRET)]),
        definitions: None,
        credentials: None,
        on_change,
        may_start: Arc::new(|_| Ok(())),
        starts_at_once: ctx_mcp::default_starts_at_once(),
    }
}

/// A peer that records all notifications and answers all questions.
#[derive(Default)]
pub(crate) struct RecordingPeer {
    pub(crate) events: Mutex<Vec<String>>,
    /// Never answers a question.
    pub(crate) never_answers: bool,
}

#[async_trait]
impl Peer for RecordingPeer {
    fn progress(&self, progress: Progress) {
        let text = format!("{}/{:?} {:?}", progress.done, progress.total, progress.message);
        self.events.lock().unwrap().push(text);
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.events.lock().unwrap().push(format!("{level} {message}"));
    }

    async fn ask(&self, question: Question) -> Result<Value, QuestionError> {
        if self.never_answers {
            return std::future::pending().await;
        }
        Ok(match question.kind {
            QuestionKind::Elicitation { message, .. } => json!({"name": format!("{message} Ada")}),
            QuestionKind::Sampling(_) => json!({
                "role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello"},
            }),
            QuestionKind::Roots => json!([{"uri": "file:///home/ada"}]),
        })
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process runs, and is not a zombie.
pub(crate) fn is_running(process: &str) -> bool {
    let state = std::process::Command::new("ps").args(["-o", "stat=", "-p", process]).output().unwrap();
    let state = String::from_utf8(state.stdout).unwrap();
    !state.trim().is_empty() && !state.starts_with('Z')
}
