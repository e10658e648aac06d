//! Calls every operation through the catalog, for workspaces that are open and for those that cannot be
//! opened.

use super::{
    AcceptUpstream, AcceptUpstreamRequest, Admin, CheckWorkspace, CheckWorkspaceRequest, Finding,
    ForgetSource, ForgetSourceRequest, ListSources, ListSourcesRequest, ListUpstreams, ListUpstreamsRequest,
    Operation, OperationError, REWRITES_DERIVED_DATA, SyncSources, SyncSourcesRequest, TestUpstream,
    TestUpstreamRequest, UpstreamDetails, UpstreamStanding, Verdict, WorkspaceFault, call, call_with,
    configuration_file,
};
use crate::config::{CliOverrides, Config, ConfigLocation, LoadContext, TrustRequest};
use crate::error::{CommandError, Exit};
use crate::harness::Additions;
use crate::workspace::Workspace;
use ctx_core::{Annotations, Call, Caller, Catalog, ErrorKind, Peer, Progress};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

const DOCS: &str = "[connectors.filesystem.docs]\nroot = \"docs\"\n";

/// A folder with two documents; a test opens workspaces in it one after the other.
struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.path("docs")).unwrap();
        std::fs::write(folder.path("docs/a.md"), "# A\nHarbour.\n").unwrap();
        std::fs::write(folder.path("docs/b.md"), "# B\nAnchor.\n").unwrap();
        folder
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Loads a configuration with these sections, for a user who trusts all of them or none.
    fn config(&self, sections: &str, trusts: bool) -> Config {
        let path = self.path("ctx.toml");
        std::fs::write(&path, format!("{sections}[embedding]\nprovider = \"disabled\"\n")).unwrap();
        let root = self.0.path().to_owned();
        let located = ConfigLocation { user: None, workspace: Some(path), root, named: true };
        let context = LoadContext {
            variables: &|_| None,
            data_folder: &|root: &Path| Some(root.join("data")),
            is_trusted: &|_: &Path, requests: &[TrustRequest]| vec![trusts; requests.len()],
        };
        Config::load(&located, &CliOverrides::default(), context).unwrap()
    }

    fn open(&self, sections: &str) -> Workspace {
        Workspace::open(self.config(sections, true), &Additions::default()).unwrap()
    }
}

async fn run<O: Operation>(
    workspace: &Workspace,
    request: O::Request,
) -> Result<O::Response, OperationError> {
    call::<O>(workspace.catalog.current(), request).await
}

/// The error's kind, and the [`CommandError`] that it converts to.
fn error_parts(error: OperationError) -> (ErrorKind, Exit, String, Vec<String>) {
    let kind = error.kind();
    let error = CommandError::from(error);
    (kind, error.exit, error.messages.join("; "), error.hints)
}

fn sources(names: &[&str]) -> SyncSourcesRequest {
    let sources = names.iter().map(ToString::to_string).collect();
    SyncSourcesRequest { sources, ..SyncSourcesRequest::default() }
}

async fn documents(workspace: &Workspace) -> Vec<(String, bool, u64)> {
    let listed = run::<ListSources>(workspace, ListSourcesRequest {}).await.unwrap();
    let sources = listed.sources.into_iter().map(|source| source.status);
    sources.map(|status| (status.name, status.configured, status.documents)).collect()
}

/// A peer that records progress and events.
#[derive(Default)]
struct RecordingPeer {
    progress: Mutex<Vec<Progress>>,
    events: Mutex<Vec<Value>>,
}

#[allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
impl Peer for RecordingPeer {
    fn progress(&self, progress: Progress) {
        self.progress.lock().unwrap().push(progress);
    }

    fn event(&self, event: &Value) {
        self.events.lock().unwrap().push(event.clone());
    }
}

#[tokio::test]
async fn a_sync_reports_progress_and_an_outcome_for_each_source() {
    let folder = TestFolder::new();
    let gone = "[connectors.filesystem.gone]\nroot = \"gone\"\n";
    let workspace = folder.open(&format!("{DOCS}{gone}"));
    let peer = Arc::new(RecordingPeer::default());
    let call = Call::new(workspace.catalog.current(), Caller::Cli).with_peer(peer.clone());
    let synced = call_with::<SyncSources>(call, sources(&["all"])).await.unwrap().sources;

    assert_eq!(
        synced.iter().map(|own| own.source.as_str()).collect::<Vec<_>>(),
        ["filesystem:docs", "filesystem:gone"]
    );
    assert_eq!(synced[0].report.as_ref().map(|report| report.added), Some(2));
    assert!(synced[0].failure.is_none() && synced[1].report.is_none() && synced[1].failure.is_some());
    let progress = peer.progress.lock().unwrap().clone();
    assert!(progress.is_sorted_by_key(|progress| progress.done as u64), "{progress:?}");
    assert_eq!(progress.last().map(|progress| progress.done), Some(2.0));
    let events = peer.events.lock().unwrap().clone();
    let last = events.iter().rfind(|event| event["source"] == "filesystem:docs");
    assert_eq!(last.map(|event| &event["seen"]), Some(&json!(2)), "{events:?}");
    assert_eq!(
        documents(&workspace).await,
        [("filesystem:docs".to_owned(), true, 2), ("filesystem:gone".to_owned(), true, 0)]
    );
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_a_limit_is_kept() {
    let folder = TestFolder::new();
    let workspace = folder.open(DOCS);
    let dry = SyncSourcesRequest { dry_run: true, ..sources(&["filesystem"]) };
    let synced = run::<SyncSources>(&workspace, dry).await.unwrap().sources;
    assert_eq!(synced[0].report.as_ref().map(|report| report.added), Some(2));
    assert_eq!(documents(&workspace).await, [("filesystem:docs".to_owned(), true, 0)]);
    let one = SyncSourcesRequest { limit: Some(1), ..sources(&["filesystem:docs"]) };
    let synced = run::<SyncSources>(&workspace, one).await.unwrap().sources;
    assert_eq!(synced[0].report.as_ref().map(|report| report.added), Some(1));
}

#[tokio::test]
async fn a_cancelled_sync_answers_that_it_was_interrupted() {
    let folder = TestFolder::new();
    let workspace = folder.open(DOCS);
    let token = CancellationToken::new();
    token.cancel();
    let call = Call::new(workspace.catalog.current(), Caller::Cli).with_cancellation(&token);
    let mut synced = call_with::<SyncSources>(call, sources(&["all"])).await.unwrap().sources;
    let error = synced.remove(0).into_result().unwrap_err();
    assert_eq!(error.exit, Exit::Interrupted);
    assert_eq!(error.messages, ["filesystem:docs: interrupted; what was read so far is kept"]);
    assert_eq!(error.hints, ["run the command again to continue"]);
}

#[tokio::test]
async fn an_unknown_source_is_refused_with_the_nearest_name_before_anything_is_synced() {
    let folder = TestFolder::new();
    let workspace = folder.open(DOCS);
    let refused = run::<SyncSources>(&workspace, sources(&["filesystem:docs", "filesystem:dcos"])).await;
    assert_eq!(
        error_parts(refused.unwrap_err()),
        (
            ErrorKind::BadRequest,
            Exit::Usage,
            "no source named `filesystem:dcos`".to_owned(),
            vec!["did you mean `filesystem:docs`?".to_owned()]
        )
    );
    assert_eq!(documents(&workspace).await, [("filesystem:docs".to_owned(), true, 0)]);
}

#[tokio::test]
async fn only_a_source_that_is_not_configured_any_more_can_be_forgotten() {
    let folder = TestFolder::new();
    let forget = |name: &str| ForgetSourceRequest { source: name.to_owned() };
    let workspace = folder.open(DOCS);
    run::<SyncSources>(&workspace, sources(&["all"])).await.unwrap();
    let (kind, exit, message, hints) =
        error_parts(run::<ForgetSource>(&workspace, forget("filesystem:docs")).await.unwrap_err());
    assert_eq!((kind, exit), (ErrorKind::BadRequest, Exit::Usage));
    assert_eq!(message, "`filesystem:docs` is configured, so the next sync would bring it back");
    assert_eq!(hints, ["remove its section from ctx.toml first"]);
    workspace.close();
    drop(workspace);

    let workspace = folder.open("");
    let refused = run::<ForgetSource>(&workspace, forget("filesystem:other")).await.unwrap_err();
    assert_eq!(error_parts(refused).2, "no source named `filesystem:other`");
    let forgotten = run::<ForgetSource>(&workspace, forget("filesystem:docs")).await.unwrap();
    assert_eq!((forgotten.source.as_str(), forgotten.removed), ("filesystem:docs", 2));
    assert_eq!(documents(&workspace).await, []);
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_is_listed_with_its_error_and_fails_its_test() {
    let folder = TestFolder::new();
    let workspace = folder.open("[apis.shop]\nspec = \"absent.yaml\"\n");
    let listed = run::<ListUpstreams>(&workspace, ListUpstreamsRequest {}).await.unwrap().upstreams;
    let [shop] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((shop.name.as_str(), shop.state, shop.function_count), ("shop", UpstreamStanding::Failed, 0));
    assert!(matches!(shop.details, UpstreamDetails::Openapi { .. }));
    let reason = shop.problem().unwrap();

    let test = |name: &str| TestUpstreamRequest { name: name.to_owned() };
    let (kind, exit, message, hints) =
        error_parts(run::<TestUpstream>(&workspace, test("shop")).await.unwrap_err());
    assert_eq!((kind, exit), (ErrorKind::Tool, Exit::Failure));
    assert_eq!(message, format!("shop: {}: {reason}", shop.reach));
    assert_eq!(hints, ["check [apis.shop] in ctx.toml"]);

    let (kind, exit, message, hints) =
        error_parts(run::<TestUpstream>(&workspace, test("shpo")).await.unwrap_err());
    assert_eq!((kind, exit), (ErrorKind::BadRequest, Exit::Usage));
    assert_eq!(message, "there is no server `shpo` in [mcp_servers]");
    assert_eq!(hints, ["`ctx upstream list` lists the configured ones", "did you mean the API `shop`?"]);
    workspace.end_processes().await;
}

#[tokio::test]
async fn an_untrusted_upstream_is_listed_and_may_not_be_used() {
    let folder = TestFolder::new();
    let config = folder.config("[mcp_servers.files]\ncommand = \"serve-files\"\n", false);
    let workspace = Workspace::open(config, &Additions::default()).unwrap();
    let listed = run::<ListUpstreams>(&workspace, ListUpstreamsRequest {}).await.unwrap().upstreams;
    let [files] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((files.name.as_str(), files.state), ("files", UpstreamStanding::NotTrusted));
    let refused =
        run::<TestUpstream>(&workspace, TestUpstreamRequest { name: "files".to_owned() }).await.unwrap_err();
    let (kind, _, message, hints) = error_parts(refused);
    assert_eq!((kind, message.as_str()), (ErrorKind::Forbidden, "[mcp_servers.files] is not trusted"));
    assert!(hints[0].contains("ctx trust"), "{hints:?}");
    workspace.end_processes().await;
}

#[tokio::test]
async fn definitions_that_were_never_seen_cannot_be_accepted() {
    let folder = TestFolder::new();
    let config = folder.config("[mcp_servers.files]\ncommand = \"serve-files\"\n", true);
    let catalog = Admin::of_config(&Arc::new(config)).into_catalog();
    let accept = |name: &str| AcceptUpstreamRequest { name: name.to_owned() };
    let unknown = call::<AcceptUpstream>(catalog.clone(), accept("files")).await.unwrap_err();
    assert_eq!(error_parts(unknown).2, "the tools of files have not been listed yet");
    let missing = call::<AcceptUpstream>(catalog, accept("flies")).await.unwrap_err();
    let (kind, exit, message, hints) = error_parts(missing);
    assert_eq!((kind, exit), (ErrorKind::BadRequest, Exit::Usage));
    assert_eq!(message, "there is no server `flies` in [mcp_servers]");
    assert_eq!(hints, ["did you mean `files`?"]);
}

async fn findings(catalog: Arc<Catalog>) -> Vec<Finding> {
    let checked = call::<CheckWorkspace>(catalog, CheckWorkspaceRequest {}).await.unwrap();
    let mut findings = checked.findings;
    // File permissions of the user's own folders depend on the machine.
    findings.retain(|finding| finding.title() != "privacy");
    findings
}

fn verdicts(findings: &[Finding]) -> Vec<(&str, Verdict)> {
    findings.iter().map(|finding| (finding.title(), finding.verdict)).collect()
}

#[tokio::test]
async fn the_doctor_reports_problems_of_an_open_workspace() {
    let folder = TestFolder::new();
    let workspace = folder.open(DOCS);
    run::<SyncSources>(&workspace, sources(&["all"])).await.unwrap();
    workspace.close();
    drop(workspace);

    let sections = "[connectors.filesystem.gone]\nroot = \"gone\"\n[apis.shop]\nspec = \"absent.yaml\"\n";
    let workspace = folder.open(sections);
    let found = findings(workspace.catalog.current()).await;
    workspace.end_processes().await;
    assert_eq!(
        verdicts(&found),
        [
            ("configuration", Verdict::Ok),
            ("store", Verdict::Ok),
            ("keyword index", Verdict::Ok),
            ("embeddings", Verdict::Ok),
            ("filesystem:gone", Verdict::Problem),
            ("filesystem:docs", Verdict::Warning),
            ("apis.shop", Verdict::Problem),
        ]
    );
    assert_eq!(found[4].advice, ["fix it in ctx.toml, then run `ctx sync filesystem:gone`"]);
}

#[tokio::test]
async fn the_doctor_reports_an_unusable_store_or_configuration() {
    let folder = TestFolder::new();
    std::fs::create_dir(folder.path("data")).unwrap();
    std::fs::write(folder.path("data/ctx.sqlite"), [7; 8_192]).unwrap();
    let config = folder.config(DOCS, true);
    let file = configuration_file(&config);
    let error = Workspace::open(config, &Additions::default()).err().unwrap();
    let fault = WorkspaceFault::of_open(file.clone(), error);
    let found = findings(Admin::of_fault(fault).into_catalog()).await;
    assert_eq!(verdicts(&found), [("configuration", Verdict::Ok), ("store", Verdict::Problem)]);
    assert_eq!(found[0].message, file);
    assert!(found[1].message.contains("is damaged") && found[1].advice.len() == 1, "{found:?}");

    let messages = vec!["line 1: no".to_owned(), "line 2: no".to_owned()];
    let error = CommandError { messages, ..CommandError::usage("") }.hint("mend it");
    let found = findings(Admin::of_fault(WorkspaceFault::Configuration(error)).into_catalog()).await;
    assert_eq!(verdicts(&found), [("configuration", Verdict::Problem); 2]);
    assert_eq!(
        (found[1].message.as_str(), found[1].advice.as_slice()),
        ("line 2: no", &["mend it".to_owned()][..])
    );
}

#[test]
fn only_operations_that_read_say_so() {
    assert_eq!(ListSources::ANNOTATIONS, Annotations::READ_ONLY);
    assert_eq!(SyncSources::ANNOTATIONS, REWRITES_DERIVED_DATA);
    for annotations in [
        SyncSources::ANNOTATIONS,
        ForgetSource::ANNOTATIONS,
        AcceptUpstream::ANNOTATIONS,
        ListUpstreams::ANNOTATIONS,
        TestUpstream::ANNOTATIONS,
        CheckWorkspace::ANNOTATIONS,
    ] {
        assert_eq!(annotations.read_only, Some(false));
    }
    assert_eq!(ForgetSource::ANNOTATIONS.destructive, Some(true));
    assert_eq!(AcceptUpstream::ANNOTATIONS.destructive, Some(true));
}
