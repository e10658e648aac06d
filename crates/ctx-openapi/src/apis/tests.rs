//! The APIs of a workspace: available before their descriptions are loaded, and unchanged when a reload
//! fails.

use super::*;
use ctx_core::{Call, Caller, Catalog, Decision, Identity, Run, RunLog, ToolName, ToolSpec};
use ctx_testkit::{MockWebServer as TestWeb, http_response, http_response_with};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

fn document(base: &str, name: &str) -> String {
    let schema = json!({"type": "integer"});
    let parameter = json!({"name": "id", "in": "path", "required": true, "schema": schema});
    let operation = json!({"operationId": name, "parameters": [parameter]});
    let path = json!({"get": operation});
    json!({"openapi": "3.1.0", "servers": [{"url": base}], "paths": {"/pets/{id}": path}}).to_string()
}

struct RunningApis {
    apis: Apis,
    changes: Arc<AtomicUsize>,
}

fn start(spec: Spec, cache: &Path) -> RunningApis {
    start_checked(spec, cache, Arc::new(|_, _| true))
}

fn start_checked(spec: Spec, cache: &Path, is_trusted: Arc<TrustCheck>) -> RunningApis {
    let changes = Arc::new(AtomicUsize::new(0));
    let count = changes.clone();
    let options = ApiOptions {
        cache: Some(cache.to_owned()),
        on_change: Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }),
        is_trusted,
    };
    let settings = ApiSettings::new(Identifier::sanitize("pets"), spec);
    RunningApis { apis: Apis::start(vec![settings], &options), changes }
}

impl RunningApis {
    fn catalog(&self) -> Arc<Catalog> {
        let providers = self.apis.providers().into_iter();
        providers.fold(Catalog::builder(), |builder, provider| builder.provider(provider)).build()
    }

    fn functions(&self) -> Vec<String> {
        self.catalog().entries().map(|entry| entry.name.to_string()).collect()
    }

    /// Waits until functions have changed this many times.
    async fn changed(&self, times: usize) {
        while self.changes.load(Ordering::SeqCst) < times {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn call(catalog: &Arc<Catalog>, name: &str, arguments: Value) -> Result<Value, String> {
    let call = Call::new(catalog.clone(), Caller::Library("test".to_owned()));
    let output = Catalog::call(name, arguments, call).await;
    output.map(|output| output.value).map_err(|error| error.message().to_owned())
}

#[tokio::test]
async fn a_call_before_the_description_was_read_waits_for_it() {
    let service = TestWeb::serve(|request| http_response(200, request.target()));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("api.json");
    fs::write(&path, document(&service.url("/v1"), "getPet")).unwrap();
    let started = start(Spec::File(path), &folder.path().join("kept"));
    let catalog = started.catalog();
    let unknown: Vec<String> = catalog.pending_providers().filter_map(|(_, why)| why).collect();
    assert_eq!(unknown, ["is not known yet: its description is being read"]);
    let output = call(&catalog, "pets.get_pet", json!({"id": 7})).await.unwrap();
    assert_eq!(output, json!("GET /v1/pets/7"));
    let refused = call(&catalog, "pets.get_pet", json!({"id": "x"})).await.unwrap_err();
    assert!(refused.starts_with("parameter `id`"), "{refused}");
    let misspelt = call(&catalog, "pets.get_pets", json!({})).await.unwrap_err();
    assert_eq!(misspelt, "pets has no function `get_pets` (did you mean `get_pet`?)");
}

/// The tool and the arguments of each recorded run.
#[derive(Default)]
struct RecordedRuns(Mutex<Vec<(String, Value)>>);

impl RunLog for RecordedRuns {
    fn record(&self, run: Run) {
        self.0.lock().unwrap().push((run.tool, run.arguments));
    }
}

#[tokio::test]
async fn an_early_call_is_validated_judged_and_recorded_as_the_real_operation() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("api.json");
    let mut described: Value = serde_json::from_str(&document("http://127.0.0.1:1", "getPet")).unwrap();
    described["paths"]["/pets/{id}"]["get"]["summary"] = json!("One pet.");
    fs::write(&path, described.to_string()).unwrap();
    let policy =
        |_: &ToolName, spec: &ToolSpec, _: &Caller, _: Option<&Identity>| match spec.description.as_str() {
            "One pet." => Decision::Allow,
            other => Decision::Deny(format!("it says `{other}`")),
        };
    let runs = Arc::new(RecordedRuns::default());
    let started = start(Spec::File(path), &folder.path().join("kept"));
    let builder = Catalog::builder().policy(Arc::new(policy)).runs(runs.clone());
    let providers = started.apis.providers().into_iter();
    let catalog = providers.fold(builder, |builder, provider| builder.provider(provider)).build();
    let refused = call(&catalog, "pets.get_pet", json!({"id": "x"})).await.unwrap_err();
    assert!(refused.starts_with("parameter `id`"), "{refused}");
    assert_eq!(*runs.0.lock().unwrap(), [("pets.get_pet".to_owned(), json!({"id": "x"}))]);
}

#[tokio::test]
async fn a_changed_file_is_reloaded_and_a_broken_one_ignored() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("api.json");
    let started = start(Spec::File(path.clone()), &folder.path().join("kept"));
    started.apis.wait_until_loaded().await;
    let state = &started.apis.statuses()[0].state;
    assert!(matches!(state, ApiState::Failed(reason) if reason.starts_with("there is no file")), "{state:?}");
    let refused = call(&started.catalog(), "pets.get_pet", json!({})).await.unwrap_err();
    assert!(
        refused.starts_with("pets cannot be called: its description cannot be read: there is"),
        "{refused}"
    );

    fs::write(&path, document("https://api.example", "getPet")).unwrap();
    started.changed(2).await;
    assert_eq!(started.functions(), ["pets.get_pet"]);
    fs::write(&path, "{").unwrap();
    started.changed(3).await;
    assert_eq!(started.functions(), ["pets.get_pet"]);
    fs::write(&path, document("https://api.example", "onePet")).unwrap();
    started.changed(4).await;
    assert_eq!(started.functions(), ["pets.one_pet"]);
}

#[tokio::test]
async fn an_untrusted_file_is_not_loaded_even_the_first_time() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("api.json");
    let trusted = document("https://api.example", "getPet");
    let check: Arc<TrustCheck> = {
        let trusted = trusted.clone();
        // A missing file counts as trusted.
        Arc::new(move |_, path| fs::read_to_string(path).map_or(true, |text| text == trusted))
    };
    let started = start_checked(Spec::File(path.clone()), &folder.path().join("kept"), check);
    started.apis.wait_until_loaded().await;
    fs::write(&path, document("https://attacker.example", "getPet")).unwrap();
    started.changed(2).await;
    let state = started.apis.statuses().remove(0).state;
    let refused = "the file has changed since it was trusted";
    assert_eq!((state, started.functions()), (ApiState::Failed(refused.to_owned()), Vec::new()));
    fs::write(&path, trusted).unwrap();
    started.changed(3).await;
    assert_eq!(started.functions(), ["pets.get_pet"]);
}

#[tokio::test]
async fn a_changed_referenced_file_is_reloaded() {
    let folder = TempDir::new().unwrap();
    let (path, part) = (folder.path().join("api.json"), folder.path().join("pets.json"));
    let document = json!({"openapi": "3.1.0", "paths": {"/pets": {"$ref": "pets.json"}}});
    fs::write(&path, document.to_string()).unwrap();
    fs::write(&part, json!({"get": {"operationId": "list"}}).to_string()).unwrap();
    let started = start(Spec::File(path), &folder.path().join("kept"));
    started.changed(1).await;
    assert_eq!(started.functions(), ["pets.list"]);
    fs::write(&part, json!({"get": {"operationId": "list_all"}}).to_string()).unwrap();
    started.changed(2).await;
    assert_eq!(started.functions(), ["pets.list_all"]);
}

#[tokio::test]
async fn a_cached_description_is_available_offline() {
    let folder = TempDir::new().unwrap();
    let document = document("/v1", "getPet");
    let spec = {
        let web = TestWeb::serve(move |_| http_response_with(200, &[("ETag", "\"1\"")], &document));
        let spec = Spec::parse(&web.url("/api.json"), Path::new("/")).unwrap();
        let started = start(spec.clone(), folder.path());
        started.apis.wait_until_loaded().await;
        assert_eq!(started.functions(), ["pets.get_pet"]);
        spec
    };
    let Spec::Web(mut unreachable_url) = spec.clone() else { panic!("{spec:?}") };
    unreachable_url.set_port(Some(1)).unwrap();
    assert!(matches!(
        start(Spec::Web(unreachable_url), folder.path()).apis.statuses()[0].state,
        ApiState::Loading
    ));
    let started = start(spec, folder.path());
    started.apis.wait_until_loaded().await;
    assert_eq!(started.functions(), ["pets.get_pet"]);
}

#[tokio::test]
async fn a_status_names_obstacles_to_calls() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("api.json");
    let guarded = json!({"operationId": "secret", "security": [{"key": []}]});
    let broken = json!({"operationId": "broken", "parameters": []});
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Pets"},
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
        "paths": {"/pets": {"get": guarded, "post": 7}, "/open": {"get": broken}},
    });
    fs::write(&path, document.to_string()).unwrap();
    let started = start(Spec::File(path), &folder.path().join("kept"));
    started.apis.wait_until_loaded().await;
    let status = started.apis.statuses().remove(0);
    assert_eq!((status.state, status.title.as_deref(), status.functions), (ApiState::Ready, Some("Pets"), 2));
    assert_eq!(status.skipped, [("POST /pets".to_owned(), "it is not an object".to_owned())]);
    let (locked, missing) = status.missing_credentials.unwrap();
    assert!(locked == 1 && missing.contains("a key for the header `X-Key`"), "{missing}");
    assert_eq!(status.base_url_error.as_deref(), Some("the description names no server; set `base_url`"));
}
