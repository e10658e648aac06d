//! The documents of one description. A document may only refer to others in the same directory or origin.

use super::text::{DescriptionError, TEXT_BYTES_MAX, parse};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use url::Url;

/// Maximum number of documents of one description.
const DOCUMENTS_MAX: usize = 512;

/// Documents that could not be read and are remembered with a reason.
const MISSING_MAX: usize = 1_000;

/// Gets the text of another document of the same description. Only asked for documents in the directory or
/// origin of the root document, by a thread that may block.
pub(crate) trait Fetch {
    /// The text at an address: a path below the directory of the root document, or a URL of its origin.
    fn fetch(&self, address: &str) -> Result<String, String>;
}

/// Location of the root document.
#[derive(Clone, Debug)]
pub(crate) enum RootLocation {
    /// A file of this name; the others are in its directory or below it.
    Directory(String),
    /// A URL; the others have the same origin.
    Web(Url),
}

impl RootLocation {
    /// The address of the root document among all documents.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Directory(file) => file.clone(),
            Self::Web(url) => without_fragment(url.clone()),
        }
    }

    /// Resolves a reference from a document; the error says why it is not followed.
    fn join(&self, from: &str, reference: &str) -> Result<String, &'static str> {
        match self {
            Self::Directory(_) => join_paths(from, reference),
            Self::Web(root) => {
                let from = Url::parse(from).map_err(|_| "is not a valid URL")?;
                let target = from.join(reference).map_err(|_| "is not a valid URL")?;
                let is_web = matches!(target.scheme(), "http" | "https");
                if !is_web || target.origin() != root.origin() {
                    return Err("is outside of the description's origin");
                }
                let is_same_user =
                    target.username() == root.username() && target.password() == root.password();
                if !is_same_user {
                    return Err("has another user name or password");
                }
                Ok(without_fragment(target))
            }
        }
    }
}

fn without_fragment(mut url: Url) -> String {
    url.set_fragment(None);
    url.into()
}

fn join_paths(from: &str, reference: &str) -> Result<String, &'static str> {
    const OUTSIDE: &str = "is outside of the description's directory";
    let reference = percent_decode(reference);
    let is_odd = reference.contains(['\\', '\0']) || reference.starts_with('/');
    let first = reference.split('/').next().unwrap_or_default();
    if is_odd || first.contains(':') {
        return Err(OUTSIDE);
    }
    let mut segments: Vec<&str> = from.split('/').collect();
    segments.pop();
    for segment in reference.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop().ok_or(OUTSIDE)?;
            }
            name => segments.push(name),
        }
    }
    if segments.is_empty() { Err(OUTSIDE) } else { Ok(segments.join("/")) }
}

/// Decodes percent-encoding such as `%20`.
pub(super) fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// All documents of a description; the first is the root document.
pub(crate) struct Documents {
    location: RootLocation,
    documents: Vec<(String, Value)>,
    indices: HashMap<String, usize>,
    /// Addresses that could not be read, and why.
    missing: HashMap<String, String>,
}

impl Documents {
    /// Parses the root document, and all that it refers to, directly or not. Only the root document must be
    /// readable.
    pub(crate) fn gather(
        text: &str,
        location: RootLocation,
        fetch: &dyn Fetch,
    ) -> Result<Self, DescriptionError> {
        let address = location.address();
        let mut gathered = Self {
            location,
            documents: vec![(address.clone(), parse(text)?)],
            indices: HashMap::from([(address, 0)]),
            missing: HashMap::new(),
        };
        let mut bytes = text.len();
        let mut next = 0;
        while next < gathered.documents.len() {
            for address in gathered.referenced_addresses(next) {
                if gathered.indices.contains_key(&address) || gathered.missing.contains_key(&address) {
                    continue;
                }
                match gathered.fetch_document(&address, &mut bytes, fetch) {
                    Ok(value) => {
                        gathered.indices.insert(address.clone(), gathered.documents.len());
                        gathered.documents.push((address, value));
                    }
                    Err(why) if gathered.missing.len() < MISSING_MAX => {
                        gathered.missing.insert(address, why);
                    }
                    Err(_) => break,
                }
            }
            next += 1;
        }
        Ok(gathered)
    }

    fn fetch_document(&self, address: &str, bytes: &mut usize, fetch: &dyn Fetch) -> Result<Value, String> {
        if self.documents.len() >= DOCUMENTS_MAX {
            return Err(format!("exceeds the limit of {DOCUMENTS_MAX} documents"));
        }
        let too_large = || Err(format!("makes the description too large: {}", DescriptionError::TooLarge));
        if *bytes >= TEXT_BYTES_MAX {
            return too_large();
        }
        let text = fetch.fetch(address)?;
        *bytes = bytes.saturating_add(text.len());
        if *bytes > TEXT_BYTES_MAX {
            return too_large();
        }
        parse(&text).map_err(|error| format!("cannot be read: {error}"))
    }

    /// Addresses of the other documents that a document refers to, as far as references to them are allowed.
    fn referenced_addresses(&self, index: usize) -> Vec<String> {
        let Some((from, document)) = self.documents.get(index) else { return Vec::new() };
        let mut addresses: Vec<String> = Vec::new();
        let mut queue = VecDeque::from([document]);
        while let Some(value) = queue.pop_front() {
            match value {
                Value::Object(fields) => {
                    if let Some(reference) = fields.get("$ref").and_then(Value::as_str)
                        && !reference.starts_with('#')
                        && let Ok(address) = self.location.join(from, strip_fragment(reference))
                        && addresses.last() != Some(&address)
                    {
                        addresses.push(address);
                    }
                    queue.extend(fields.values().filter(|field| field.is_object() || field.is_array()));
                }
                Value::Array(items) => {
                    queue.extend(items.iter().filter(|item| item.is_object() || item.is_array()));
                }
                _ => {}
            }
        }
        addresses
    }

    /// The root document.
    pub(crate) fn root(&self) -> &Value {
        self.documents.first().map_or(&Value::Null, |(_, value)| value)
    }

    /// A document by its index.
    pub(super) fn document(&self, index: usize) -> Option<&Value> {
        self.documents.get(index).map(|(_, value)| value)
    }

    /// The document and the fragment that a reference points to; the error says why there is no such
    /// document.
    pub(super) fn locate<'r>(&self, from: usize, reference: &'r str) -> Result<(usize, &'r str), String> {
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if file.is_empty() {
            return Ok((from, fragment));
        }
        let from = self.documents.get(from).map_or("", |(address, _)| address.as_str());
        let address = self.location.join(from, file).map_err(str::to_owned)?;
        match (self.indices.get(&address), self.missing.get(&address)) {
            (Some(index), _) => Ok((*index, fragment)),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => Err("does not exist".to_owned()),
        }
    }

    /// The address of a document.
    pub(super) fn address(&self, index: usize) -> &str {
        self.documents.get(index).map_or("", |(address, _)| address)
    }
}

fn strip_fragment(reference: &str) -> &str {
    reference.split_once('#').map_or(reference, |(file, _)| file)
}

/// A [`Fetch`] for a description of a single document.
pub(crate) struct SingleDocument;

impl Fetch for SingleDocument {
    fn fetch(&self, _: &str) -> Result<String, String> {
        Err("is in another document".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Documents in memory, and the addresses that were fetched.
    #[derive(Default)]
    struct MemoryDocuments {
        texts: HashMap<&'static str, &'static str>,
        fetched: RefCell<Vec<String>>,
    }

    impl Fetch for MemoryDocuments {
        fn fetch(&self, address: &str) -> Result<String, String> {
            self.fetched.borrow_mut().push(address.to_owned());
            self.texts.get(address).map(|text| (*text).to_owned()).ok_or("does not exist".to_owned())
        }
    }

    #[test]
    fn references_are_resolved_against_their_own_document() {
        let memory = MemoryDocuments {
            texts: HashMap::from([
                ("parts/pet.yaml", "owner: {$ref: '../people/owner.yaml#/Owner'}\nself: {$ref: pet.yaml}"),
                ("people/owner.yaml", "Owner: {pets: {$ref: ../api.yaml#/x}}"),
            ]),
            ..MemoryDocuments::default()
        };
        let location = RootLocation::Directory("api.yaml".to_owned());
        let text = "x: {$ref: 'parts/pet.yaml#/owner'}\ny: {$ref: './parts/pet.yaml'}\nz: {$ref: gone.yaml}";
        let documents = Documents::gather(text, location, &memory).unwrap();
        assert_eq!(*memory.fetched.borrow(), ["parts/pet.yaml", "gone.yaml", "people/owner.yaml"]);
        assert_eq!(documents.locate(0, "parts/pet.yaml#/owner"), Ok((1, "/owner")));
        assert_eq!(documents.locate(1, "../people/owner.yaml"), Ok((2, "")));
        assert_eq!(documents.locate(2, "../api.yaml#/x"), Ok((0, "/x")));
        assert_eq!(documents.locate(0, "gone.yaml"), Err("does not exist".to_owned()));
    }

    #[test]
    fn nothing_is_fetched_beyond_the_byte_limit() {
        /// Returns documents of the maximum size of a whole description.
        #[derive(Default)]
        struct LargeDocuments(RefCell<Vec<String>>);

        impl Fetch for LargeDocuments {
            fn fetch(&self, address: &str) -> Result<String, String> {
                self.0.borrow_mut().push(address.to_owned());
                Ok(" ".repeat(TEXT_BYTES_MAX))
            }
        }

        let large = LargeDocuments::default();
        let text = "x: {$ref: a.yaml}\ny: {$ref: b.yaml}\nz: {$ref: c.yaml}";
        let documents =
            Documents::gather(text, RootLocation::Directory("api.yaml".to_owned()), &large).unwrap();
        assert_eq!(*large.0.borrow(), ["a.yaml"]);
        for reference in ["a.yaml", "b.yaml", "c.yaml"] {
            let error = documents.locate(0, reference).unwrap_err();
            assert!(error.contains("too large"), "{error}");
        }
    }

    #[test]
    fn nothing_outside_the_directory_is_fetched() {
        let memory = MemoryDocuments::default();
        let location = RootLocation::Directory("api.yaml".to_owned());
        for reference in [
            "file:///etc/passwd",
            "/etc/passwd",
            "../secret.yaml",
            "a/../../secret.yaml",
            "%2e%2e/secret.yaml",
            "..%2Fsecret.yaml",
            "https://example.com/a.yaml",
            "//example.com/a.yaml",
            "C:\\secret.yaml",
            "a\\..\\..\\b",
            "..",
        ] {
            let text = serde_json::json!({"x": {"$ref": reference}}).to_string();
            let documents = Documents::gather(&text, location.clone(), &memory).unwrap();
            assert_eq!(
                documents.locate(0, reference),
                Err("is outside of the description's directory".to_owned()),
                "{reference}"
            );
        }
        assert!(memory.fetched.borrow().is_empty(), "{:?}", memory.fetched);
    }

    #[test]
    fn nothing_of_another_origin_is_fetched() {
        let memory = MemoryDocuments::default();
        let location = RootLocation::Web(Url::parse("https://example.com/v1/api.yaml").unwrap());
        for reference in [
            "file:///etc/passwd",
            "http://example.com/a.yaml",
            "https://example.com:444/a.yaml",
            "//other.example/a.yaml",
            "https://example.com.evil.example/a.yaml",
            "https://example.com@evil.example/",
            "https://user@example.com/a.yaml",
            "\\\\evil.example\\a",
        ] {
            let text = serde_json::json!({"x": {"$ref": reference}}).to_string();
            let documents = Documents::gather(&text, location.clone(), &memory).unwrap();
            assert!(documents.locate(0, reference).is_err(), "{reference}");
        }
        assert!(memory.fetched.borrow().is_empty(), "{:?}", memory.fetched);
        let text = r##"{"x": {"$ref": "../common.yaml#/a"}, "y": {"$ref": "api.yaml#/x"}}"##;
        Documents::gather(text, location, &memory).unwrap();
        assert_eq!(*memory.fetched.borrow(), ["https://example.com/common.yaml"]);
    }
}
