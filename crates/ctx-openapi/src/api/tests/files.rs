//! Files: returned by one operation and sent by another.

use super::*;
use crate::operation::PartEncoding;
use ctx_core::{ContentBlock, FILE_PREFIX, FileStore, Identity, StoredFile};
use std::sync::Mutex;

/// Content of the file: not valid text.
const BYTES: &[u8] = b"\x89PNG\r\n\x1a\n\x00\xff";

/// A file keeper: files are visible to the identity that stored them.
#[derive(Default)]
struct MemoryKeeper(Mutex<Vec<(Option<String>, StoredFile)>>);

impl FileStore for MemoryKeeper {
    fn store(&self, file: StoredFile, owner: Option<&Identity>) -> String {
        let mut files = self.0.lock().unwrap();
        files.push((owner.map(|owner| owner.subject.clone()), file));
        format!("{FILE_PREFIX}{}", files.len() - 1)
    }

    fn load(&self, uri: &str, reader: Option<&Identity>) -> Result<StoredFile, ToolError> {
        let files = self.0.lock().unwrap();
        let number: Option<usize> = uri.strip_prefix(FILE_PREFIX).and_then(|id| id.parse().ok());
        let found = number.and_then(|number| files.get(number));
        let found =
            found.filter(|(owner, _)| owner.as_deref() == reader.map(|reader| reader.subject.as_str()));
        found.map(|(_, file)| file.clone()).ok_or_else(|| ToolError::not_found("no file is kept there"))
    }
}

/// A provider without tools, for its file keeper.
struct KeeperProvider(Arc<MemoryKeeper>);

impl Provider for KeeperProvider {
    fn name(&self) -> Identifier {
        Identifier::sanitize("keeping")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn file_store(&self) -> Option<Arc<dyn FileStore>> {
        Some(self.0.clone())
    }
}

/// A service that returns and accepts a picture, and a catalog with a file keeper.
fn picture_catalog(web: &MockWebServer) -> Arc<Catalog> {
    let named = |name: &str, operation: Operation| Operation { name: name.to_owned(), ..operation };
    let sending = |name: &str, kind: BodyEncoding, content_type: &str| {
        let body = body(&[], vec![("application/json", BodyEncoding::Json), (content_type, kind)]);
        named(name, Operation { body: Some(body), ..operation("POST", "/pictures") })
    };
    let multipart = BodyEncoding::Multipart(BTreeMap::from([(
        "picture".to_owned(),
        PartEncoding { is_file: true, ..PartEncoding::default() },
    )]));
    let mut in_parts = sending("parts", multipart, "multipart/form-data");
    in_parts.body.as_mut().unwrap().media.remove(0);
    let operations = vec![
        named("get", operation("GET", "/picture")),
        sending("put", BodyEncoding::Binary, "application/octet-stream"),
        in_parts,
    ];
    let api = api(web, operations, |_| ());
    Catalog::builder().provider(Arc::new(api)).provider(Arc::new(KeeperProvider(Arc::default()))).build()
}

fn picture_service() -> MockWebServer {
    MockWebServer::serve(|request| match request.target() {
        "GET /v1/picture" => {
            let head =
                [("Content-Type", "image/png"), ("Content-Disposition", "attachment; filename=\"a/p.png\"")];
            let mut reply = http_response_with(200, &head, &"x".repeat(BYTES.len()));
            let body_at = reply.len() - BYTES.len();
            reply[body_at..].copy_from_slice(BYTES);
            reply
        }
        _ => http_response(204, ""),
    })
}

fn call_as(catalog: &Arc<Catalog>, subject: &str) -> Call {
    let identity = Identity { subject: subject.to_owned(), ..Identity::default() };
    Call::new(catalog.clone(), Caller::Library("test".to_owned())).with_identity(Arc::new(identity))
}

#[tokio::test]
async fn a_binary_response_is_kept_and_its_uri_returned() {
    let web = picture_service();
    let catalog = picture_catalog(&web);
    let output = Catalog::call("pets.get", json!({}), call_as(&catalog, "me")).await.unwrap();
    let expected =
        json!({ "uri": "ctx://file/0", "content_type": "image/png", "bytes": 10, "name": "p.png" });
    assert_eq!(output.value, expected);
    let link = json!({
        "type": "resource_link", "uri": "ctx://file/0", "name": "p.png", "mimeType": "image/png", "size": 10,
    });
    let link = ContentBlock::from_json(link).unwrap();
    assert_eq!(output.content, [ContentBlock::Text(expected.to_string()), link]);
    // Without a file keeper, the response has the bytes.
    let alone = api(&web, vec![operation("GET", "/picture")], |_| ());
    assert_eq!(call(alone, json!({})).await.unwrap().value["base64"], "iVBORw0KGgoA/w==");
}

#[tokio::test]
async fn a_kept_file_is_sent_unchanged() {
    let web = picture_service();
    let catalog = picture_catalog(&web);
    let file = Catalog::call("pets.get", json!({}), call_as(&catalog, "me")).await.unwrap().value;
    Catalog::call("pets.put", json!({ "body": file }), call_as(&catalog, "me")).await.unwrap();
    let request = web.requests().pop().unwrap();
    assert_eq!((request.header("content-type"), &request.body[..]), (Some("image/png"), BYTES));
    let parts = json!({ "body": { "picture": file, "note": { "uri": "https://example.com" } } });
    Catalog::call("pets.parts", parts, call_as(&catalog, "me")).await.unwrap();
    let sent = web.requests().pop().unwrap().body;
    let expected =
        [&b"name=\"picture\"; filename=\"p.png\"\r\nContent-Type: image/png\r\n\r\n"[..], BYTES, b"\r\n--"]
            .concat();
    assert!(
        sent.windows(expected.len()).any(|window| window == expected),
        "{}",
        String::from_utf8_lossy(&sent)
    );
    assert!(String::from_utf8_lossy(&sent).contains(r#"{"uri":"https://example.com"}"#));
}

#[tokio::test]
async fn a_kept_file_of_another_caller_cannot_be_sent() {
    let web = picture_service();
    let catalog = picture_catalog(&web);
    let file = Catalog::call("pets.get", json!({}), call_as(&catalog, "me")).await.unwrap().value;
    for arguments in [json!({ "body": file }), json!({ "body": { "uri": "ctx://file/9" } })] {
        let error = Catalog::call("pets.put", arguments, call_as(&catalog, "them")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadRequest);
        assert_eq!(error.message(), "`body` cannot be sent: no file is kept there");
    }
    assert_eq!(web.requests().len(), 1);
}
