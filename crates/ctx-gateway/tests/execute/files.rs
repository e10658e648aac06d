//! Kept files: results of functions that scripts pass on without holding the bytes.

use crate::Test;
use crate::bench::{Bench, limits, settings};
use ctx_core::{Call, Caller, Catalog, ErrorKind, FILE_PREFIX, Identity, Provider, StoredFile};
use ctx_testkit::{provider, tool};
use serde_json::{Value, json};
use std::sync::Arc;

/// The content of the file.
const BYTES: &[u8] = &[0x89, b'P', b'N', b'G', 0, 0xff];

pub(crate) const TESTS: &[Test] = tests![files:
    a_file_goes_from_one_function_to_another_without_the_script,
    a_script_reads_the_bytes_or_a_range_of_them,
    a_file_is_a_resource,
    only_whose_file_it_is_reads_it,
    a_command_in_a_terminal_keeps_nothing,
];

/// A provider with a function that returns a file, and one that takes a file and answers with what arrived.
fn places() -> Arc<dyn Provider> {
    let download = tool("download", |_, call| {
        let file = StoredFile {
            name: Some("a.png".to_owned()),
            content_type: "image/png".to_owned(),
            bytes: BYTES.into(),
        };
        Box::pin(async move {
            Ok(json!({ "uri": call.store_file(&file), "content_type": file.content_type, "bytes": 6 }).into())
        })
    });
    let upload = tool("upload", |arguments, call| {
        Box::pin(async move {
            let uri = arguments.get("file").and_then(|file| file["uri"].as_str()).unwrap_or_default();
            let file = call.load_file(uri)?;
            Ok(json!({ "name": file.name, "type": file.content_type, "numbers": file.bytes.to_vec() }).into())
        })
    });
    provider("places", [download, upload])
}

fn bench() -> Bench {
    Bench::of(settings(), limits(), vec![places()])
}

async fn download(bench: &Bench) -> String {
    let file = bench.value("return sdk.places.download()").await;
    let uri = file["uri"].as_str().unwrap_or_else(|| panic!("{file}"));
    assert!(uri.starts_with(FILE_PREFIX), "{uri}");
    uri.to_owned()
}

pub(crate) async fn a_file_goes_from_one_function_to_another_without_the_script() {
    let arrived = bench().value("return sdk.places.upload{ file = sdk.places.download() }").await;
    assert_eq!(arrived, json!({ "name": "a.png", "type": "image/png", "numbers": BYTES }));
}

pub(crate) async fn a_script_reads_the_bytes_or_a_range_of_them() {
    let bench = bench();
    let uri = download(&bench).await;
    let read = async |rest: &str| bench.value(&format!("return sdk.ctx.file{{ uri = '{uri}'{rest} }}")).await;
    let whole = json!({ "base64": "iVBORwD/", "content_type": "image/png", "bytes": 6, "name": "a.png" });
    assert_eq!(read("").await, whole);
    assert_eq!(read(", from = 2, count = 3").await["base64"], "UE5H");
    assert_eq!(read(", from = 7").await["base64"], "");
    let decoded = "local file = sdk.ctx.file(sdk.places.download()) return #base64.decode(file.base64)";
    assert_eq!(bench.value(decoded).await, json!(6));
}

pub(crate) async fn a_file_is_a_resource() {
    let bench = bench();
    let uri = download(&bench).await;
    let contents = Catalog::read(&uri, bench.call()).await.unwrap();
    let [content] = &contents[..] else { panic!("{contents:?}") };
    assert_eq!(
        (content.mime_type.as_deref(), content.blob.as_deref()),
        (Some("image/png"), Some("iVBORwD/"))
    );
    let missing = Catalog::read("ctx://file/gone", bench.call()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.message().starts_with("no file is kept under the id gone"), "{missing}");
}

pub(crate) async fn only_whose_file_it_is_reads_it() {
    let bench = bench();
    let call_of = |subject: &str| {
        let identity = Identity { subject: subject.to_owned(), ..Identity::default() };
        bench.call().with_identity(Arc::new(identity))
    };
    let run =
        async |script: &str, call: Call| Catalog::call("execute", json!({ "script": script }), call).await;
    let file = run("return sdk.places.download()", call_of("me")).await.unwrap().value;
    let uri = file["uri"].as_str().unwrap();
    let reading = format!("return sdk.ctx.file{{ uri = '{uri}' }}");
    let handing_on = format!("return sdk.places.upload{{ file = {{ uri = '{uri}' }} }}");
    for script in [&reading, &handing_on] {
        assert!(run(script, call_of("me")).await.is_ok(), "{script}");
        for other in [call_of("them"), bench.call()] {
            let error = run(script, other).await.unwrap_err();
            assert!(error.message().contains("no file is kept"), "{error}");
        }
    }
    assert!(Catalog::read(uri, call_of("me")).await.is_ok());
    assert_eq!(Catalog::read(uri, call_of("them")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub(crate) async fn a_command_in_a_terminal_keeps_nothing() {
    let bench = bench();
    let command = Call::new(bench.catalog.clone(), Caller::Cli);
    let file = Catalog::call("places.download", json!({}), command).await.unwrap().value;
    assert_eq!(file["uri"], Value::Null);
}
