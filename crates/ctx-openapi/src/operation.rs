//! An operation: everything that is needed to call it, and nothing of the document that it came from.
//!
//! Operations are made by reading a document, which is slow and may be large; they are kept on disk as they are
//! here. Whatever can be decided once is decided then: a call only fills in values.

use crate::fragment::Fragment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a document describes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// What the interface is called.
    pub(crate) title: String,
    /// The operations that can be called, in the document's order, names unique.
    pub(crate) operations: Vec<Operation>,
    /// Credentials that operations ask for, by name.
    pub(crate) schemes: BTreeMap<String, Scheme>,
    /// Operations that cannot be called, and why.
    pub(crate) skipped: Vec<Skipped>,
    /// What the operations' schemas refer to as `#/$defs/…`, each once: a large document's operations all reach
    /// the same few thousand. Read-only and write-only fields are marked here, not left out.
    pub(crate) definitions: BTreeMap<String, Value>,
}

/// What cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skipped {
    /// As the document names it: `GET /pets/{id}`.
    pub(crate) what: String,
    /// What is wrong with it.
    pub(crate) why: String,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// Its name: an identifier of at most 64 characters.
    pub(crate) name: String,
    /// The method, in capitals.
    pub(crate) method: String,
    /// The path with `{names}` in it.
    pub(crate) path: String,
    /// Where it is, best first: absolute or relative to the document, with variables filled in by their
    /// defaults; empty where the document says nothing.
    pub(crate) servers: Vec<String>,
    /// A name for people.
    pub(crate) title: Option<String>,
    /// What it does, first sentence first; says so where it is deprecated.
    pub(crate) description: String,
    /// What it belongs to.
    pub(crate) tags: Vec<String>,
    /// Whether it should not be used any more.
    pub(crate) deprecated: bool,
    /// What goes into path, query, headers and cookies.
    pub(crate) parameters: Vec<Parameter>,
    /// What is sent.
    pub(crate) body: Option<Body>,
    /// What comes back when all went well.
    pub(crate) answer: Answer,
    /// Ways to be let in, best first; each is a set of schemes with their scopes, and an empty set lets anybody in.
    /// None at all: nothing is said.
    pub(crate) security: Vec<BTreeMap<String, Vec<String>>>,
    /// JSON Schema (2020-12) of the arguments: all parameters by name and `body`. What is read-only is not in
    /// it. What it refers to is in the description's definitions: [`Description::input_schema`] is the whole.
    pub(crate) input_schema: Fragment,
    /// JSON Schema of what comes back; none where that is unknown. [`Description::output_schema`] is the whole.
    pub(crate) output_schema: Option<Fragment>,
    /// Values of arguments that are always sent and that callers neither see nor give.
    pub(crate) frozen: BTreeMap<String, Value>,
}

/// Which way a value goes, which decides whether what is read-only or write-only is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Request,
    Response,
}

impl Way {
    /// The mark of what does not go this way.
    pub(crate) fn gone(self) -> &'static str {
        match self {
            Self::Request => "readOnly",
            Self::Response => "writeOnly",
        }
    }
}

/// What a reference to a definition begins with.
const DEFINITION: &str = "#/$defs/";

/// A reference to a definition.
pub(crate) fn definition_reference(name: &str) -> String {
    format!("{DEFINITION}{name}")
}

/// The definition that a reference means.
pub(crate) fn definition_name(reference: &str) -> Option<&str> {
    reference.strip_prefix(DEFINITION)
}

/// Where a parameter goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
    Cookie,
}

/// One parameter. It is kept with short names: there are tens of thousands of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parameter {
    /// What the argument is called: the parameter's own name, unless that is taken by one of another place.
    #[serde(rename = "a")]
    pub(crate) argument: String,
    /// What it is called in the request.
    #[serde(rename = "n")]
    pub(crate) name: String,
    /// Where it goes.
    #[serde(rename = "p")]
    pub(crate) place: Place,
    /// Whether it must be given.
    #[serde(rename = "r", default, skip_serializing_if = "is_not")]
    pub(crate) required: bool,
    /// How it is written.
    #[serde(rename = "f")]
    pub(crate) format: Format,
}

/// Whether a flag need not be kept.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as it is called for")]
fn is_not(flag: &bool) -> bool {
    !*flag
}

/// How a parameter's value is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Format {
    /// By a style.
    Style {
        #[serde(rename = "s")]
        style: Style,
        /// Whether the items of a list, or the fields of an object, stand by themselves.
        #[serde(rename = "e", default, skip_serializing_if = "is_not")]
        explode: bool,
        /// Whether reserved characters stay as they are.
        #[serde(rename = "r", default, skip_serializing_if = "is_not")]
        allow_reserved: bool,
    },
    /// As content of this type, usually JSON.
    Content(String),
}

/// The styles that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
    /// `collectionFormat: tsv` of the second version.
    TabDelimited,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Body {
    /// What the argument is called: `body`, unless a parameter or a field of its own is.
    pub(crate) argument: String,
    /// Whether it must be given.
    pub(crate) required: bool,
    /// Whether it can be an object, whose fields may then be given beside the parameters.
    pub(crate) has_fields: bool,
    /// The names that its fields can have, as far as they are known.
    pub(crate) fields: Vec<String>,
    /// The kinds of content that are taken, best first.
    pub(crate) media: Vec<Media>,
}

/// One kind of content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Media {
    /// As it is sent: `application/json`.
    pub(crate) content_type: String,
    /// How a value becomes it.
    pub(crate) kind: MediaKind,
}

/// How a value becomes content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum MediaKind {
    Json,
    /// Fields of a form, and how each is written where that is said.
    Form(BTreeMap<String, Part>),
    /// Parts, and how each is written where that is said.
    Multipart(BTreeMap<String, Part>),
    Text,
    /// Bytes; a string is taken as it is, `{ base64 = "…" }` is decoded, of `{ uri = "…" }` what is kept is sent.
    Binary,
}

/// How a field of a form, or a part, is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Its kind of content.
    pub(crate) content_type: Option<String>,
    /// Whether it is a file: bytes with a name.
    pub(crate) is_file: bool,
    /// In a form, its style.
    pub(crate) format: Option<Format>,
}

/// What comes back when all went well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Kinds of content that are asked for with `Accept`, best first.
    pub(crate) accept: Vec<String>,
}

/// How credentials are given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scheme {
    /// `Authorization: Bearer …`
    Bearer,
    /// `Authorization: Basic …`
    Basic,
    /// A key in a header, the query or a cookie.
    Key { place: Place, name: String },
    /// A token that is got with a client's id and secret.
    ClientCredentials { token_url: String, scopes: Vec<String> },
    /// Another way to get a bearer token, which we do not go: one that is given is sent.
    OtherToken,
    /// Something else.
    Unknown(String),
}
