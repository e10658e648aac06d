//! Descriptions are parsed once, and only read from allowed locations.

use super::*;
use crate::client::HttpClient;
use crate::settings::ApiSettings;
use ctx_core::Identifier;
use ctx_testkit::{MockWebServer as TestWeb, http_response, http_response_with};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};
use tempfile::TempDir;

const PETS: &str = "openapi: 3.0.0
paths:
  /pets:
    get:
      operationId: listPets
      responses: {'200': {description: ok, content: {application/json: {schema: {$ref: 'parts/pet.yaml'}}}}}
";

fn fetcher(cache: Option<DescriptionCache>) -> CachedFetcher {
    let settings = ApiSettings::new(Identifier::sanitize("x"), Spec::File("x".into()));
    CachedFetcher::new(HttpClient::new(&settings).unwrap(), cache, tokio::runtime::Handle::current())
}

/// Loads a description on a blocking thread.
async fn load(spec: Spec, cache: &Path, policy: CachePolicy) -> Result<LoadedDescription, String> {
    let cache = DescriptionCache::in_folder(cache.to_owned());
    let fetcher = fetcher(Some(cache.clone()));
    let load =
        move || load_description(&spec, Some(&cache), &fetcher, policy).map_err(|error| error.to_string());
    tokio::task::spawn_blocking(load).await.unwrap()
}

async fn load_file(path: &Path, cache: &Path) -> Result<LoadedDescription, String> {
    load(Spec::File(path.to_owned()), cache, CachePolicy::Revalidate).await
}

fn operations(loaded: &LoadedDescription) -> Vec<&str> {
    loaded.description.operations.iter().map(|operation| operation.name.as_str()).collect()
}

fn folder_with_pets() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("parts")).unwrap();
    fs::write(folder.path().join("api.yaml"), PETS).unwrap();
    fs::write(folder.path().join("parts/pet.yaml"), "type: object\nproperties: {name: {type: string}}")
        .unwrap();
    folder
}

/// The cached files.
fn cached_files(folder: &Path) -> Vec<String> {
    let mut files: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_parsed_description_is_cached_until_one_of_its_documents_changes() {
    let (folder, cache) = (folder_with_pets(), TempDir::new().unwrap());
    let path = folder.path().join("api.yaml");
    let first = load_file(&path, cache.path()).await.unwrap();
    assert_eq!(operations(&first), ["list_pets"]);
    let files = cached_files(cache.path());
    assert_eq!(files.len(), 1, "{files:?}");

    // A changed cache file shows that the cache is used: its name is the one returned.
    let file = cache.path().join(&files[0]);
    let changed = fs::read_to_string(&file).unwrap().replace("list_pets", "kept_pets");
    fs::write(&file, changed).unwrap();
    let second = load_file(&path, cache.path()).await.unwrap();
    assert_eq!(operations(&second), ["kept_pets"]);
    assert_eq!(second.fingerprint, first.fingerprint);

    fs::write(folder.path().join("parts/pet.yaml"), "type: string").unwrap();
    let third = load_file(&path, cache.path()).await.unwrap();
    assert_eq!(operations(&third), ["list_pets"]);
    assert_ne!(third.fingerprint, first.fingerprint);

    fs::write(&file, "damaged").unwrap();
    assert_eq!(operations(&load_file(&path, cache.path()).await.unwrap()), ["list_pets"]);
}

#[tokio::test]
async fn a_symbolic_link_out_of_the_folder_is_not_followed() {
    let (folder, cache, outside) = (folder_with_pets(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let secret = outside.path().join("secret.yaml");
    fs::write(&secret, "type: object\nproperties: {hunter2: {type: string}}").unwrap();
    let part = folder.path().join("parts/pet.yaml");
    fs::remove_file(&part).unwrap();
    std::os::unix::fs::symlink(&secret, &part).unwrap();
    let loaded = load_file(&folder.path().join("api.yaml"), cache.path()).await.unwrap();
    assert!(!format!("{loaded:?}").contains("hunter2"));
}

#[tokio::test]
async fn load_errors_say_what_is_wrong() {
    let (folder, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let error_of = async |name: &str| load_file(&folder.path().join(name), cache.path()).await.unwrap_err();
    assert_eq!(error_of("gone.yaml").await, "there is no file gone.yaml");
    assert_eq!(error_of("").await, "it is not a file");
    fs::write(folder.path().join("broken.yaml"), "openapi: 3.0.0\npaths: {\n").unwrap();
    let broken = error_of("broken.yaml").await;
    assert!(broken.starts_with("line "), "{broken}");
    let large = fs::File::create(folder.path().join("large.yaml")).unwrap();
    large.set_len(100 << 20).unwrap();
    assert_eq!(error_of("large.yaml").await, "it is larger than 64 MiB");
    assert_eq!(cached_files(cache.path()), Vec::<String>::new());
}

#[tokio::test]
async fn a_cached_text_is_revalidated_with_its_etag() {
    let text = Arc::new(Mutex::new((PETS.to_owned(), "\"one\"".to_owned())));
    let served = text.clone();
    let web = TestWeb::serve(move |request| {
        let (text, etag) = served.lock().unwrap().clone();
        match request.target() {
            "GET /api.yaml" if request.header("if-none-match") == Some(&etag) => http_response(304, ""),
            "GET /api.yaml" => http_response_with(200, &[("ETag", &etag)], &text),
            _ => http_response(404, "no"),
        }
    });
    let cache = TempDir::new().unwrap();
    let spec = || Spec::parse(&web.url("/api.yaml"), Path::new("/")).unwrap();
    assert!(load(spec(), cache.path(), CachePolicy::CacheOnly).await.is_err());
    assert!(web.requests().is_empty());

    let first = load(spec(), cache.path(), CachePolicy::Revalidate).await.unwrap();
    assert_eq!(first.address.as_ref().unwrap().url.as_str(), web.url("/api.yaml"));
    let targets =
        |web: &TestWeb| web.requests().iter().map(|request| request.target().to_owned()).collect::<Vec<_>>();
    assert_eq!(targets(&web), ["GET /api.yaml", "GET /parts/pet.yaml"]);

    let second = load(spec(), cache.path(), CachePolicy::Revalidate).await.unwrap();
    assert_eq!(second.fingerprint, first.fingerprint);
    assert_eq!(web.requests()[2].header("if-none-match"), Some("\"one\""));

    *text.lock().unwrap() = (PETS.replace("listPets", "allPets"), "\"two\"".to_owned());
    let third = load(spec(), cache.path(), CachePolicy::Revalidate).await.unwrap();
    assert_eq!(operations(&third), ["all_pets"]);
    assert_ne!(third.fingerprint, first.fingerprint);
}

#[tokio::test]
async fn the_root_document_may_redirect_but_references_stay_in_its_origin() {
    let elsewhere = TestWeb::serve(|_| http_response(200, "type: object"));
    let to = elsewhere.url("/pet.yaml");
    let web = TestWeb::serve(move |request| match request.target() {
        "GET /old" => http_response_with(302, &[("Location", "/new/api.yaml")], ""),
        "GET /new/api.yaml" => http_response(200, PETS),
        _ => http_response_with(302, &[("Location", &to)], ""),
    });
    let cache = TempDir::new().unwrap();
    let spec = Spec::parse(&web.url("/old"), Path::new("/")).unwrap();
    let loaded = load(spec, cache.path(), CachePolicy::Revalidate).await.unwrap();
    assert_eq!(loaded.address.unwrap().url.path(), "/new/api.yaml");
    assert_eq!(web.requests()[2].target(), "GET /new/parts/pet.yaml");
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_fetched_text_has_a_size_limit() {
    let request = Arc::new(AtomicUsize::new(0));
    let count = request.clone();
    let web = TestWeb::serve(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\nopenapi".to_vec()
    });
    let cache = TempDir::new().unwrap();
    let spec = Spec::parse(&web.url("/api.yaml"), Path::new("/")).unwrap();
    let error = load(spec, cache.path(), CachePolicy::Revalidate).await.unwrap_err();
    assert!(error.contains("larger than"), "{error}");
    assert_eq!(request.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn nothing_is_requested_after_the_total_deadline() {
    let web = TestWeb::serve(|_| http_response(200, "type: object"));
    let url = Url::parse(&web.url("/api.yaml")).unwrap();
    let root = WebAddress { url, scope: NetworkScope::Loopback };
    let part = web.url("/pet.yaml");
    let fetcher = fetcher(None);
    let fetched =
        move |deadline: Instant| fetcher.same_origin(&root, CachePolicy::Revalidate, deadline).fetch(&part);
    let (over, ahead) = tokio::task::spawn_blocking(move || {
        let now = Instant::now();
        (fetched(now), fetched(now + TOTAL_TIME_MAX))
    })
    .await
    .unwrap();
    assert_eq!(over.unwrap_err(), "loading the documents of the description takes more than 120 seconds");
    assert_eq!(ahead.unwrap(), "type: object");
    assert_eq!(web.requests().len(), 1);
}

#[tokio::test]
async fn a_cached_description_is_complete_or_not_used() {
    let web = TestWeb::serve(|request| match request.target() {
        "GET /api.yaml" => http_response(200, PETS),
        _ => http_response(200, "type: object\nproperties: {name: {type: string}}"),
    });
    let cache = TempDir::new().unwrap();
    let spec = || Spec::parse(&web.url("/api.yaml"), Path::new("/")).unwrap();
    let complete = load(spec(), cache.path(), CachePolicy::Revalidate).await.unwrap();
    let operations =
        cached_files(cache.path()).into_iter().find(|name| name.ends_with(".operations")).unwrap();
    let operations = cache.path().join(operations);
    let before = fs::read(&operations).unwrap();
    let part = DescriptionCache::in_folder(cache.path().to_owned()).text_path(&web.url("/parts/pet.yaml"));

    // Using a cached file updates its modification time.
    let long_ago = SystemTime::UNIX_EPOCH;
    fs::File::options().append(true).open(&part).unwrap().set_modified(long_ago).unwrap();
    let again = load(spec(), cache.path(), CachePolicy::CacheOnly).await.unwrap();
    assert_eq!(again.fingerprint, complete.fingerprint);
    assert_ne!(fs::metadata(&part).unwrap().modified().unwrap(), long_ago);

    fs::remove_file(&part).unwrap();
    let error = load(spec(), cache.path(), CachePolicy::CacheOnly).await.unwrap_err();
    assert_eq!(error, "a document that it refers to is not in the cache");
    assert_eq!(fs::read(&operations).unwrap(), before);
    assert_eq!(web.requests().len(), 2);
}

#[tokio::test]
async fn a_public_description_cannot_redirect_to_loopback() {
    for host in ["127.0.0.1", "localhost"] {
        let inner = TestWeb::serve(|_| http_response(200, PETS));
        let to = inner.url("/api.yaml").replace("127.0.0.1", host);
        let outer = TestWeb::serve(move |_| http_response_with(302, &[("Location", &to)], ""));
        let url = Url::parse(&outer.url("/")).unwrap();
        let fetch_root = |is_public: bool| {
            let settings = ApiSettings::new(Identifier::sanitize("x"), Spec::File("x".into()));
            let client = HttpClient::new(&settings).unwrap();
            let client = if is_public { client.with_public_peers() } else { client };
            let (fetcher, url) =
                (CachedFetcher::new(client, None, tokio::runtime::Handle::current()), url.clone());
            let deadline = Instant::now() + TOTAL_TIME_MAX;
            tokio::task::spawn_blocking(move || fetcher.fetch_root(&url, CachePolicy::Revalidate, deadline))
        };
        let refused = fetch_root(true).await.unwrap().unwrap_err();
        assert!(refused.contains("a loopback address"), "{refused}");
        assert!(inner.requests().is_empty(), "{host}");
        let fetched = fetch_root(false).await.unwrap().unwrap();
        assert_eq!((fetched.text.as_str(), fetched.scope), (PETS, NetworkScope::Loopback), "{host}");
    }
}
