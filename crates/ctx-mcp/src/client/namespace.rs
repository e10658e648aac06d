//! Names of a server's resources and prompts in our catalog, and back.
//!
//! A URI becomes `mcp://<server>/` followed by the server's own URI, unchanged. A server that is itself a
//! gateway may send such URIs: they get a second prefix, and lose one on the way back.

use super::definition::{is_hidden_name, make_visible, visible};
use ctx_core::{
    AgentArgument, AgentSource, AgentSpec, ContentBlock, Identifier, Message, Prompt, Resource,
    ResourceContent, ResourceTemplate, Role,
};
use rmcp::model::{self as mcp, ResourceContents};
use serde::Serialize;
use serde_json::{Map, Value};

/// Bytes of a URI or name; a longer one is not passed on.
const NAME_BYTES_MAX: usize = 8 << 10;

/// The namespace of one server.
pub(super) struct Namespace {
    server: String,
    prefix: String,
}

impl Namespace {
    pub(super) fn new(server: &Identifier) -> Self {
        Self { server: server.to_string(), prefix: format!("mcp://{server}/") }
    }

    /// The prefix of the URIs of the server's resources.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn uri(&self, original: &str) -> String {
        format!("{}{original}", self.prefix)
    }

    /// [`Self::uri`] for a URI that the server sent; `None` if it cannot be passed on.
    pub(super) fn checked_uri(&self, original: &str) -> Option<String> {
        is_valid_name(original).then(|| self.uri(original))
    }

    /// The server's own URI; `None` if `uri` is not one of this server, or cannot be passed on.
    pub(super) fn original_uri<'a>(&self, uri: &'a str) -> Option<&'a str> {
        uri.strip_prefix(&self.prefix).filter(|original| is_valid_name(original))
    }

    /// The server's own name of a prompt.
    pub(super) fn original_prompt<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.server)?.strip_prefix('/')
    }

    /// Rewrites the URI of a content block that links or embeds a resource.
    pub(super) fn rewrite_uris(&self, block: &mut Value) {
        let uri = match block.get("type").and_then(Value::as_str) {
            Some("resource_link") => block.get_mut("uri"),
            Some("resource") => block.pointer_mut("/resource/uri"),
            _ => None,
        };
        if let Some(Value::String(uri)) = uri {
            *uri = self.uri(uri);
        }
    }

    /// A resource under its name in our catalog; `None` if its URI cannot be passed on.
    pub(super) fn resource(&self, resource: mcp::Resource) -> Option<Resource> {
        is_valid_name(&resource.uri).then(|| Resource {
            uri: self.uri(&resource.uri),
            name: visible(&resource.name),
            title: resource.title.as_deref().map(visible),
            description: resource.description.as_deref().map(visible),
            mime_type: resource.mime_type,
            size: resource.size,
            more: metadata_fields(&resource.annotations, &resource.icons, &resource.meta),
        })
    }

    /// A resource template under its name in our catalog; `None` if its URI cannot be passed on.
    pub(super) fn template(&self, template: mcp::ResourceTemplate) -> Option<ResourceTemplate> {
        is_valid_name(&template.uri_template).then(|| ResourceTemplate {
            uri_template: self.uri(&template.uri_template),
            name: visible(&template.name),
            title: template.title.as_deref().map(visible),
            description: template.description.as_deref().map(visible),
            mime_type: template.mime_type,
            more: metadata_fields(&template.annotations, &template.icons, &template.meta),
        })
    }

    /// Contents of a resource under its URI in our catalog; `None` for an unknown type of contents.
    pub(super) fn content(&self, content: ResourceContents) -> Option<ResourceContent> {
        let (uri, mime_type, text, blob, meta) = match content {
            ResourceContents::TextResourceContents { uri, mime_type, text, meta } => {
                (uri, mime_type, Some(text), None, meta)
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, meta } => {
                (uri, mime_type, None, Some(blob), meta)
            }
            _ => return None,
        };
        let more = metadata_fields(&None::<()>, &None::<()>, &meta);
        Some(ResourceContent { uri: self.uri(&uri), mime_type, text, blob, more })
    }

    /// A prompt as an agent; `None` if its name, or that of an argument, cannot be passed on.
    pub(super) fn agent(&self, prompt: mcp::Prompt) -> Option<AgentSpec> {
        let argument = |argument: mcp::PromptArgument| AgentArgument {
            name: argument.name,
            description: visible(argument.description.as_deref().unwrap_or_default()),
            required: argument.required.unwrap_or_default(),
            choices: Vec::new(),
        };
        let arguments = prompt.arguments.iter().flatten();
        let has_visible_arguments = arguments.into_iter().all(|argument| !is_hidden_name(&argument.name));
        (is_valid_name(&prompt.name) && has_visible_arguments).then(|| AgentSpec {
            name: format!("{}/{}", self.server, prompt.name),
            title: prompt.title.as_deref().map(visible),
            description: visible(prompt.description.as_deref().unwrap_or_default()),
            tools: Vec::new(),
            source: AgentSource::Mcp,
            arguments: prompt.arguments.unwrap_or_default().into_iter().map(argument).collect(),
        })
    }

    /// The messages of a prompt, with URIs rewritten and invisible characters escaped.
    pub(super) fn prompt(&self, result: mcp::GetPromptResult) -> Prompt {
        let message = |message: mcp::PromptMessage| {
            let mut block = serde_json::to_value(message.content).ok()?;
            self.rewrite_uris(&mut block);
            make_visible(&mut block);
            let role = match message.role {
                mcp::Role::Assistant => Role::Assistant,
                _ => Role::User,
            };
            Some(Message { role, content: vec![ContentBlock::from_json(block)?] })
        };
        let messages = result.messages.into_iter().filter_map(message).collect();
        Prompt { system: String::new(), tools: Vec::new(), messages }
    }
}

/// Whether a text can be passed on as a name or URI: neither empty nor too long, and without invisible
/// characters and line breaks, which could mislead its readers.
fn is_valid_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !is_hidden_name(text)
}

/// The optional metadata of a resource or template, as JSON fields.
fn metadata_fields(
    annotations: &Option<impl Serialize>,
    icons: &Option<impl Serialize>,
    meta: &Option<impl Serialize>,
) -> Map<String, Value> {
    let fields = [
        ("annotations", serde_json::to_value(annotations)),
        ("icons", serde_json::to_value(icons)),
        ("_meta", serde_json::to_value(meta)),
    ];
    let present = |(key, value): (&str, Result<Value, _>)| {
        let mut value = value.ok().filter(|value| !value.is_null())?;
        make_visible(&mut value);
        Some((key.to_owned(), value))
    };
    fields.into_iter().filter_map(present).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn namespace() -> Namespace {
        Namespace::new(&Identifier::sanitize("calculator"))
    }

    #[test]
    fn uris_of_resource_blocks_are_rewritten_and_nothing_else() {
        let uri = "file:///data.json";
        let renamed = "mcp://calculator/file:///data.json";
        for (block, expected) in [
            (
                json!({"type": "resource_link", "uri": uri, "name": uri}),
                json!({"type": "resource_link", "uri": renamed, "name": uri}),
            ),
            (
                json!({"type": "resource", "resource": {"uri": uri, "text": uri}, "_meta": {"uri": uri}}),
                json!({"type": "resource", "resource": {"uri": renamed, "text": uri}, "_meta": {"uri": uri}}),
            ),
            (
                json!({"type": "resource", "resource": {"uri": uri, "blob": "AA=="}}),
                json!({"type": "resource", "resource": {"uri": renamed, "blob": "AA=="}}),
            ),
            (
                json!({"type": "text", "text": uri, "uri": uri}),
                json!({"type": "text", "text": uri, "uri": uri}),
            ),
            (json!({"type": "resource_link", "uri": 7}), json!({"type": "resource_link", "uri": 7})),
            (json!({"type": "resource", "resource": []}), json!({"type": "resource", "resource": []})),
        ] {
            let mut block = block;
            namespace().rewrite_uris(&mut block);
            assert_eq!(block, expected);
        }
    }

    #[test]
    fn invisible_characters_are_escaped_in_all_texts_of_a_prompt() {
        let hidden = "a\u{200b}b";
        for (content, places) in [
            (json!({"type": "text", "text": hidden}), &["/text"][..]),
            (
                json!({"type": "resource", "resource": {"uri": "file:///a", "text": hidden}}),
                &["/resource/text"],
            ),
            (
                json!({"type": "resource_link", "uri": "file:///a", "name": hidden, "description": hidden}),
                &["/name", "/description"],
            ),
        ] {
            let result = json!({"messages": [{"role": "user", "content": content}]});
            let mut prompt = namespace().prompt(serde_json::from_value(result).unwrap());
            let block = serde_json::to_value(prompt.messages.remove(0).content.remove(0)).unwrap();
            for place in places {
                assert_eq!(block.pointer(place), Some(&json!(visible(hidden))), "{block}");
            }
        }
    }

    #[test]
    fn invalid_names_and_uris_are_not_passed_on() {
        let namespace = namespace();
        for uri in
            ["", "file:///a\nb", "a\u{0}", "file:///a\u{200b}b", "\u{202e}a", &"x".repeat(NAME_BYTES_MAX + 1)]
        {
            assert_eq!(namespace.resource(mcp::Resource::new(uri, "r")), None);
            assert_eq!(namespace.template(mcp::ResourceTemplate::new(uri, "t")), None);
            assert_eq!(namespace.agent(mcp::Prompt::new(uri, None::<String>, None)), None);
            assert_eq!(namespace.original_uri(&namespace.uri(uri)), None);
        }
        let spaced = namespace.resource(mcp::Resource::new("file:///a b", "r")).unwrap();
        assert_eq!(spaced.uri, "mcp://calculator/file:///a b");
    }

    proptest! {
        #[test]
        fn a_uri_survives_a_round_trip(uri in "[^\\p{C}\\p{Z}\\p{M}\\u{115f}\\u{1160}\\u{3164}\\u{ffa0}]{1,50}") {
            let (inner, outer) = (Namespace::new(&Identifier::sanitize("inner")), namespace());
            let twice = outer.uri(&inner.uri(&uri));
            let once = outer.original_uri(&twice).unwrap();
            prop_assert_eq!(inner.original_uri(once), Some(uri.as_str()));
            prop_assert_eq!(inner.original_uri(&twice), None);
        }

        #[test]
        fn a_prompt_name_survives_a_round_trip(name in "[^\\p{C}\\p{Z}\\p{M}\\u{115f}\\u{1160}\\u{3164}\\u{ffa0}]{1,50}") {
            let agent = namespace().agent(mcp::Prompt::new(&name, None::<String>, None)).unwrap();
            prop_assert_eq!(namespace().original_prompt(&agent.name), Some(name.as_str()));
        }
    }
}
