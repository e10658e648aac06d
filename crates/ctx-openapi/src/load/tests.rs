//! Descriptions are parsed once, and only read from allowed locations.

use super::*;
use crate::client::Web;
use crate::settings::ApiSettings;
use ctx_core::Identifier;
use ctx_testkit::{Web as TestWeb, reply, reply_with};
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

fn texts(kept: Option<Kept>) -> WebTexts {
    let settings = ApiSettings::new(Identifier::sanitize("x"), Spec::File("x".into()));
    WebTexts::new(Web::new(&settings).unwrap(), kept, tokio::runtime::Handle::current())
}

/// Loads a description on a blocking thread.
async fn loaded(spec: Spec, kept: &Path, asking: Asking) -> Result<Loaded, String> {
    let kept = Kept::in_folder(kept.to_owned());
    let texts = texts(Some(kept.clone()));
    let loading = move || load(&spec, Some(&kept), &texts, asking).map_err(|error| error.to_string());
    tokio::task::spawn_blocking(loading).await.unwrap()
}

async fn from_file(path: &Path, kept: &Path) -> Result<Loaded, String> {
    loaded(Spec::File(path.to_owned()), kept, Asking::Web).await
}

fn operations(loaded: &Loaded) -> Vec<&str> {
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
fn kept_files(folder: &Path) -> Vec<String> {
    let mut files: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn what_was_made_of_texts_is_kept_until_one_of_them_changes() {
    let (folder, kept) = (folder_with_pets(), TempDir::new().unwrap());
    let path = folder.path().join("api.yaml");
    let first = from_file(&path, kept.path()).await.unwrap();
    assert_eq!(operations(&first), ["list_pets"]);
    let files = kept_files(kept.path());
    assert_eq!(files.len(), 1, "{files:?}");

    // A changed cache file shows that the cache is used: its name is the one returned.
    let file = kept.path().join(&files[0]);
    let changed = fs::read_to_string(&file).unwrap().replace("list_pets", "kept_pets");
    fs::write(&file, changed).unwrap();
    let second = from_file(&path, kept.path()).await.unwrap();
    assert_eq!(operations(&second), ["kept_pets"]);
    assert_eq!(second.fingerprint, first.fingerprint);

    fs::write(folder.path().join("parts/pet.yaml"), "type: string").unwrap();
    let third = from_file(&path, kept.path()).await.unwrap();
    assert_eq!(operations(&third), ["list_pets"]);
    assert_ne!(third.fingerprint, first.fingerprint);

    fs::write(&file, "damaged").unwrap();
    assert_eq!(operations(&from_file(&path, kept.path()).await.unwrap()), ["list_pets"]);
}

#[tokio::test]
async fn a_link_out_of_the_folder_is_not_followed() {
    let (folder, kept, outside) = (folder_with_pets(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let secret = outside.path().join("secret.yaml");
    fs::write(&secret, "type: object\nproperties: {hunter2: {type: string}}").unwrap();
    let part = folder.path().join("parts/pet.yaml");
    fs::remove_file(&part).unwrap();
    std::os::unix::fs::symlink(&secret, &part).unwrap();
    let loaded = from_file(&folder.path().join("api.yaml"), kept.path()).await.unwrap();
    assert!(!format!("{loaded:?}").contains("hunter2"));
}

#[tokio::test]
async fn what_cannot_be_read_is_told() {
    let (folder, kept) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let told = async |name: &str| from_file(&folder.path().join(name), kept.path()).await.unwrap_err();
    assert_eq!(told("gone.yaml").await, "there is no file gone.yaml");
    assert_eq!(told("").await, "it is not a file");
    fs::write(folder.path().join("broken.yaml"), "openapi: 3.0.0\npaths: {\n").unwrap();
    let broken = told("broken.yaml").await;
    assert!(broken.starts_with("line "), "{broken}");
    let large = fs::File::create(folder.path().join("large.yaml")).unwrap();
    large.set_len(100 << 20).unwrap();
    assert_eq!(told("large.yaml").await, "it is larger than 64 MiB");
    assert_eq!(kept_files(kept.path()), Vec::<String>::new());
}

#[tokio::test]
async fn a_text_of_the_web_is_asked_for_again_only_to_learn_whether_it_has_changed() {
    let text = Arc::new(Mutex::new((PETS.to_owned(), "\"one\"".to_owned())));
    let served = text.clone();
    let web = TestWeb::serve(move |asked| {
        let (text, etag) = served.lock().unwrap().clone();
        match asked.target() {
            "GET /api.yaml" if asked.header("if-none-match") == Some(&etag) => reply(304, ""),
            "GET /api.yaml" => reply_with(200, &[("ETag", &etag)], &text),
            _ => reply(404, "no"),
        }
    });
    let kept = TempDir::new().unwrap();
    let spec = || Spec::read(&web.url("/api.yaml"), Path::new("/")).unwrap();
    assert!(loaded(spec(), kept.path(), Asking::Kept).await.is_err());
    assert!(web.asked().is_empty());

    let first = loaded(spec(), kept.path(), Asking::Web).await.unwrap();
    assert_eq!(first.address.as_ref().unwrap().url.as_str(), web.url("/api.yaml"));
    let targets =
        |web: &TestWeb| web.asked().iter().map(|asked| asked.target().to_owned()).collect::<Vec<_>>();
    assert_eq!(targets(&web), ["GET /api.yaml", "GET /parts/pet.yaml"]);

    let second = loaded(spec(), kept.path(), Asking::Web).await.unwrap();
    assert_eq!(second.fingerprint, first.fingerprint);
    assert_eq!(web.asked()[2].header("if-none-match"), Some("\"one\""));

    *text.lock().unwrap() = (PETS.replace("listPets", "allPets"), "\"two\"".to_owned());
    let third = loaded(spec(), kept.path(), Asking::Web).await.unwrap();
    assert_eq!(operations(&third), ["all_pets"]);
    assert_ne!(third.fingerprint, first.fingerprint);
}

#[tokio::test]
async fn a_text_of_the_web_may_lead_elsewhere_but_what_it_refers_to_may_not() {
    let elsewhere = TestWeb::serve(|_| reply(200, "type: object"));
    let to = elsewhere.url("/pet.yaml");
    let web = TestWeb::serve(move |asked| match asked.target() {
        "GET /old" => reply_with(302, &[("Location", "/new/api.yaml")], ""),
        "GET /new/api.yaml" => reply(200, PETS),
        _ => reply_with(302, &[("Location", &to)], ""),
    });
    let kept = TempDir::new().unwrap();
    let spec = Spec::read(&web.url("/old"), Path::new("/")).unwrap();
    let loaded = loaded(spec, kept.path(), Asking::Web).await.unwrap();
    assert_eq!(loaded.address.unwrap().url.path(), "/new/api.yaml");
    assert_eq!(web.asked()[2].target(), "GET /new/parts/pet.yaml");
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn a_text_of_the_web_has_a_bound() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let web = TestWeb::serve(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\nopenapi".to_vec()
    });
    let kept = TempDir::new().unwrap();
    let spec = Spec::read(&web.url("/api.yaml"), Path::new("/")).unwrap();
    let error = loaded(spec, kept.path(), Asking::Web).await.unwrap_err();
    assert!(error.contains("larger than"), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn nothing_is_asked_for_when_the_time_for_all_texts_is_over() {
    let web = TestWeb::serve(|_| reply(200, "type: object"));
    let url = Url::parse(&web.url("/api.yaml")).unwrap();
    let home = WebAddress { url, scope: NetworkScope::Loopback };
    let part = web.url("/pet.yaml");
    let texts = texts(None);
    let fetched = move |until: Instant| texts.beside(&home, Asking::Web, until).fetch(&part);
    let (over, ahead) = tokio::task::spawn_blocking(move || {
        let now = Instant::now();
        (fetched(now), fetched(now + ALL_TIME_MAX))
    })
    .await
    .unwrap();
    assert_eq!(over.unwrap_err(), "the texts of the description take more than 120 seconds");
    assert_eq!(ahead.unwrap(), "type: object");
    assert_eq!(web.asked().len(), 1);
}

#[tokio::test]
async fn what_is_kept_of_the_web_is_whole_or_nothing() {
    let web = TestWeb::serve(|asked| match asked.target() {
        "GET /api.yaml" => reply(200, PETS),
        _ => reply(200, "type: object\nproperties: {name: {type: string}}"),
    });
    let kept = TempDir::new().unwrap();
    let spec = || Spec::read(&web.url("/api.yaml"), Path::new("/")).unwrap();
    let whole = loaded(spec(), kept.path(), Asking::Web).await.unwrap();
    let operations = kept_files(kept.path()).into_iter().find(|name| name.ends_with(".operations")).unwrap();
    let operations = kept.path().join(operations);
    let before = fs::read(&operations).unwrap();
    let part = Kept::in_folder(kept.path().to_owned()).text_path(&web.url("/parts/pet.yaml"));

    // Using a cached file updates its modification time.
    let long_ago = SystemTime::UNIX_EPOCH;
    fs::File::options().append(true).open(&part).unwrap().set_modified(long_ago).unwrap();
    let again = loaded(spec(), kept.path(), Asking::Kept).await.unwrap();
    assert_eq!(again.fingerprint, whole.fingerprint);
    assert_ne!(fs::metadata(&part).unwrap().modified().unwrap(), long_ago);

    fs::remove_file(&part).unwrap();
    let told = loaded(spec(), kept.path(), Asking::Kept).await.unwrap_err();
    assert_eq!(told, "a text that it refers to is not kept");
    assert_eq!(fs::read(&operations).unwrap(), before);
    assert_eq!(web.asked().len(), 2);
}

#[tokio::test]
async fn a_text_of_the_internet_does_not_lead_to_this_machine() {
    for host in ["127.0.0.1", "localhost"] {
        let inner = TestWeb::serve(|_| reply(200, PETS));
        let to = inner.url("/api.yaml").replace("127.0.0.1", host);
        let outer = TestWeb::serve(move |_| reply_with(302, &[("Location", &to)], ""));
        let url = Url::parse(&outer.url("/")).unwrap();
        let first = |is_public: bool| {
            let settings = ApiSettings::new(Identifier::sanitize("x"), Spec::File("x".into()));
            let web = Web::new(&settings).unwrap();
            let web = if is_public { web.with_public_peers() } else { web };
            let (texts, url) = (WebTexts::new(web, None, tokio::runtime::Handle::current()), url.clone());
            let until = Instant::now() + ALL_TIME_MAX;
            tokio::task::spawn_blocking(move || texts.first(&url, Asking::Web, until))
        };
        let refused = first(true).await.unwrap().unwrap_err();
        assert!(refused.contains("an address of this machine"), "{refused}");
        assert!(inner.asked().is_empty(), "{host}");
        let got = first(false).await.unwrap().unwrap();
        assert_eq!((got.text.as_str(), got.scope), (PETS, NetworkScope::Loopback), "{host}");
    }
}
