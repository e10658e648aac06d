//! An [`Operation`]: everything that a call needs, and nothing else of the document that it came from.
//!
//! Parsing a document is slow, so operations are cached on disk in this form. Whatever can be decided once is
//! decided while parsing: a call only fills in values.

use crate::lazy_schema::LazySchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A parsed description.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// The API's title (`info.title`).
    pub(crate) title: String,
    /// The operations that can be called, in the document's order. Their names are unique.
    pub(crate) operations: Vec<Operation>,
    /// Security schemes, by name.
    pub(crate) schemes: BTreeMap<String, SecurityScheme>,
    /// Operations that cannot be called, and why.
    pub(crate) skipped: Vec<SkippedOperation>,
    /// Definitions that the operations' schemas refer to as `#/$defs/…`, each once: all operations of a large
    /// document refer to the same few thousand. Read-only and write-only fields are marked here, not left
    /// out.
    pub(crate) definitions: BTreeMap<String, Value>,
}

/// An operation that cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SkippedOperation {
    /// Method and path, or the path alone: `GET /pets/{id}`.
    #[serde(rename = "what")]
    pub(crate) name: String,
    /// Why it cannot be called.
    #[serde(rename = "why")]
    pub(crate) reason: String,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// Its function name: an identifier of at most 64 characters.
    pub(crate) name: String,
    /// The HTTP method, in upper case.
    pub(crate) method: String,
    /// The path template, such as `/pets/{id}`.
    pub(crate) path: String,
    /// Server URLs, best first: absolute or relative to the document, their variables replaced by defaults;
    /// empty if the document names none.
    pub(crate) servers: Vec<String>,
    /// Title for people, from `summary`.
    pub(crate) title: Option<String>,
    /// `summary` and `description`, else method and path; with a note if the operation is deprecated.
    pub(crate) description: String,
    /// Its tags.
    pub(crate) tags: Vec<String>,
    /// Whether it is deprecated.
    pub(crate) deprecated: bool,
    /// Parameters in the path, the query, headers and cookies.
    pub(crate) parameters: Vec<Parameter>,
    /// The request body.
    pub(crate) body: Option<Body>,
    /// The successful response.
    #[serde(rename = "answer")]
    pub(crate) response: SuccessResponse,
    /// Security requirements: alternatives, in the document's order. Each is a set of security schemes with
    /// their scopes; an empty set needs no credentials. An empty list means that the document says nothing.
    pub(crate) security: Vec<BTreeMap<String, Vec<String>>>,
    /// JSON Schema (2020-12) of the arguments: all parameters by name, and the body. Read-only fields are not
    /// in it. Its definitions are in [`Description::definitions`]; [`Description::input_schema`] adds them.
    pub(crate) input_schema: LazySchema,
    /// JSON Schema of the response; `None` if unknown. [`Description::output_schema`] adds its definitions.
    pub(crate) output_schema: Option<LazySchema>,
    /// Frozen parameters: values of arguments that are always sent, and that callers neither see nor set.
    pub(crate) frozen: BTreeMap<String, Value>,
}

/// Direction of a value: read-only fields are not sent in requests, write-only fields not in responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Response,
}

impl Direction {
    /// The schema keyword that marks fields which do not go in this direction.
    pub(crate) fn excluding_keyword(self) -> &'static str {
        match self {
            Self::Request => "readOnly",
            Self::Response => "writeOnly",
        }
    }
}

/// Prefix of a reference to a definition.
const DEFINITION_PREFIX: &str = "#/$defs/";

/// The `$ref` to a definition.
pub(crate) fn definition_reference(name: &str) -> String {
    format!("{DEFINITION_PREFIX}{name}")
}

/// The name of the definition that a `$ref` points to.
pub(crate) fn definition_name(reference: &str) -> Option<&str> {
    reference.strip_prefix(DEFINITION_PREFIX)
}

/// The location of a parameter (`in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
}

/// One parameter. Its serialized field names are short: a description may have tens of thousands of
/// parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parameter {
    /// The name of its argument: the parameter's own, unless a parameter in another location has it.
    #[serde(rename = "a")]
    pub(crate) argument: String,
    /// Its name in the request.
    #[serde(rename = "n")]
    pub(crate) name: String,
    /// Its location.
    #[serde(rename = "p")]
    pub(crate) location: ParameterLocation,
    /// Whether it is required.
    #[serde(rename = "r", default, skip_serializing_if = "is_false")]
    pub(crate) required: bool,
    /// How its value is serialized.
    #[serde(rename = "f")]
    pub(crate) format: Format,
}

/// Whether a flag is false, and so left out of the serialized form.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as it is called for")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// How the value of a parameter is serialized.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Format {
    /// By a `style`.
    Style {
        #[serde(rename = "s")]
        style: ParameterStyle,
        /// Whether the items of a list, or the fields of an object, become pairs of their own.
        #[serde(rename = "e", default, skip_serializing_if = "is_false")]
        explode: bool,
        /// Whether reserved characters stay unencoded (`allowReserved`).
        #[serde(rename = "r", default, skip_serializing_if = "is_false")]
        allow_reserved: bool,
    },
    /// As content of this media type, usually JSON.
    Content(String),
}

/// Parameter styles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ParameterStyle {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
    /// `collectionFormat: tsv` of Swagger 2.0.
    TabDelimited,
}

/// A request body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Body {
    /// The name of its argument: `body`, unless a parameter or one of its own fields has that name.
    pub(crate) argument: String,
    /// Whether it is required.
    pub(crate) required: bool,
    /// Whether it can be an object, whose fields callers may then pass beside the parameters.
    pub(crate) has_fields: bool,
    /// The names of its fields, as far as they are known.
    pub(crate) fields: Vec<String>,
    /// The media types that the operation accepts, best first.
    pub(crate) media: Vec<MediaType>,
}

/// One media type of a request body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MediaType {
    /// As sent in `Content-Type`, such as `application/json`.
    pub(crate) content_type: String,
    /// How a value is encoded.
    #[serde(rename = "kind")]
    pub(crate) encoding: BodyEncoding,
}

/// How a value is encoded for a media type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum BodyEncoding {
    Json,
    /// A URL-encoded form; the map has the fields with an encoding of their own.
    Form(BTreeMap<String, PartEncoding>),
    /// Multipart; the map has the parts with an encoding of their own.
    Multipart(BTreeMap<String, PartEncoding>),
    Text,
    /// Bytes: a string is sent as it is, `{ base64 = "…" }` is decoded, and `{ uri = "…" }` refers to a kept
    /// file.
    Binary,
}

/// Encoding of a field of a form, or of a part of a multipart body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartEncoding {
    /// Its media type.
    pub(crate) content_type: Option<String>,
    /// Whether it is a file: bytes with a file name.
    pub(crate) is_file: bool,
    /// Its style, if it has one.
    pub(crate) format: Option<Format>,
}

/// The successful response of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SuccessResponse {
    /// Media types for `Accept`, best first.
    pub(crate) accept: Vec<String>,
}

/// A security scheme.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SecurityScheme {
    /// `Authorization: Bearer …`
    Bearer,
    /// `Authorization: Basic …`
    Basic,
    /// An API key in a header, the query or a cookie.
    Key {
        #[serde(rename = "place")]
        location: ParameterLocation,
        name: String,
    },
    /// The OAuth 2.0 client credentials grant: access tokens are requested from `token_url`.
    ClientCredentials { token_url: String, scopes: Vec<String> },
    /// Another OAuth 2.0 flow, or OpenID Connect. It is not run; a configured bearer token is sent.
    OtherToken,
    /// A scheme that is not supported, with its type.
    Unknown(String),
}
