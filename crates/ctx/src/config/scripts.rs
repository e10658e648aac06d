//! Sections of scripts and agents: some keys are defined here, and the others of a script's section are
//! passed to the script.

use super::settings::{SourceSettings, seconds};
use ctx_core::{RateLimit, json_schema};
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// Raw sections, by kind and name.
pub(crate) type RawSections = BTreeMap<String, BTreeMap<String, Map<String, Value>>>;

/// A kind of section below a group: `[tools.script.<name>]`.
pub(crate) struct SectionKind {
    /// `tools`
    pub(crate) group: &'static str,
    /// `script`
    pub(crate) kind: &'static str,
    summary: &'static str,
    /// Whether other keys are allowed and passed to the script.
    allows_other_keys: bool,
    schema: fn() -> Value,
    check: fn(&Value) -> Result<(), KeyProblem>,
}

/// A key, and the problem of its value.
pub(super) type KeyProblem = (String, String);

/// All kinds of sections, except built-in connectors.
pub(crate) const SECTION_KINDS: &[SectionKind] = &[
    SectionKind {
        group: "connectors",
        kind: "script",
        summary: "A connector written in Lua. Keys that are not listed here are the script's `config`.",
        allows_other_keys: true,
        schema: json_schema::<ConnectorSection>,
        check: check::<ConnectorSection>,
    },
    SectionKind {
        group: "tools",
        kind: "script",
        summary: "A tool written in Lua. Keys that are not listed here are the script's `context.config`.",
        allows_other_keys: true,
        schema: json_schema::<ToolSection>,
        check: check::<ToolSection>,
    },
    SectionKind {
        group: "agents",
        kind: "inline",
        summary: "An agent that is defined in ctx.toml.",
        allows_other_keys: false,
        schema: json_schema::<InlineAgentSection>,
        check: check::<InlineAgentSection>,
    },
    SectionKind {
        group: "agents",
        kind: "script",
        summary: "An agent written in Lua. Keys that are not listed here are the script's `config`.",
        allows_other_keys: true,
        schema: json_schema::<AgentSection>,
        check: check::<AgentSection>,
    },
];

/// `[tools.script.<name>]`
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ToolSection {
    /// The script's file, relative to the workspace.
    pub(crate) path: PathBuf,
    /// Seconds one call may take; `limits.script_timeout` when absent.
    timeout: Option<NonZeroU32>,
    /// Rate limit, such as `10/m`; unlimited when absent.
    rate_limit: Option<RateSetting>,
    /// Whether each call needs a person's approval. Only `false`: approval is not implemented yet.
    #[serde(default, deserialize_with = "deserialize_only_false", rename = "approve")]
    #[schemars(with = "bool")]
    _approve: (),
    /// Hosts that the script may contact with `http`; every public host when empty.
    #[serde(default)]
    pub(crate) allow_hosts: Vec<String>,
}

/// `[agents.script.<name>]`
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AgentSection {
    /// The script's file, relative to the workspace.
    pub(crate) path: PathBuf,
    /// Seconds it may take; `limits.script_timeout` when absent.
    timeout: Option<NonZeroU32>,
    /// Hosts that the script may contact with `http`; every public host when empty.
    #[serde(default)]
    pub(crate) allow_hosts: Vec<String>,
}

/// `[connectors.script.<name>]`, without the keys that every source may have.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ConnectorSection {
    /// The script's file, relative to the workspace.
    pub(crate) path: PathBuf,
    /// Seconds one sync may take; 300 when absent.
    timeout: Option<NonZeroU32>,
    /// Hosts that the script may contact with `http`; every public host when empty.
    #[serde(default)]
    pub(crate) allow_hosts: Vec<String>,
}

/// `[agents.inline.<name>]`
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct InlineAgentSection {
    /// Description of the agent.
    pub(crate) description: String,
    /// The tools it uses.
    #[serde(default)]
    pub(crate) tools: Vec<String>,
    /// Its instructions.
    pub(crate) system_prompt: String,
    /// Arguments of the agent: a list of `{ name, description, required }`.
    #[serde(default)]
    pub(crate) arguments: Vec<ArgumentSection>,
}

/// One argument of an agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArgumentSection {
    /// Its name.
    pub(crate) name: String,
    /// Description of the argument.
    #[serde(default)]
    pub(crate) description: String,
    /// Whether the argument is required.
    #[serde(default)]
    pub(crate) required: bool,
    /// Possible values, offered as completions.
    #[serde(default)]
    pub(crate) choices: Vec<String>,
}

impl ToolSection {
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(seconds)
    }

    pub(crate) fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_limit.map(RateSetting::limit)
    }
}

impl AgentSection {
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(seconds)
    }
}

impl ConnectorSection {
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(seconds)
    }
}

/// A rate limit in the configuration.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(super) struct RateSetting(RateLimit);

impl RateSetting {
    pub(super) fn limit(self) -> RateLimit {
        self.0
    }
}

impl TryFrom<String> for RateSetting {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: ctx_core::InvalidRate| error.to_string())
    }
}

fn deserialize_only_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    match bool::deserialize(deserializer)? {
        false => Ok(()),
        true => Err(D::Error::custom("approval of calls is not supported yet; remove this key, or the tool")),
    }
}

/// One section: its own settings, and the keys that are passed to the script.
#[derive(Debug)]
pub(crate) struct NamedSection<T> {
    pub(crate) name: String,
    pub(crate) settings: T,
    pub(crate) config: Map<String, Value>,
}

/// Deserializes the sections of a kind. Cannot fail: they were checked when the configuration was loaded.
pub(super) fn read_sections<T: DeserializeOwned>(
    raw: &RawSections,
    group: &str,
    kind: &str,
) -> Vec<NamedSection<T>> {
    let section_kind = SECTION_KINDS.iter().find(|known| (known.group, known.kind) == (group, kind));
    let properties = section_kind.map(SectionKind::properties).unwrap_or_default();
    let section = |(name, fields): (&String, &Map<String, Value>)| {
        let settings = T::deserialize(Value::Object(fields.clone())).ok()?;
        let rest = fields.iter().filter(|(key, _)| !properties.contains_key(*key));
        let config = rest.map(|(key, value)| (key.clone(), value.clone())).collect();
        Some(NamedSection { name: name.clone(), settings, config })
    };
    raw.get(kind).into_iter().flatten().filter_map(section).collect()
}

impl SectionKind {
    /// Checks a section of this kind.
    pub(super) fn check(&self, fields: &Map<String, Value>) -> Result<(), KeyProblem> {
        (self.check)(&Value::Object(fields.clone()))
    }

    /// The schema of a table of sections of this kind.
    pub(super) fn schema(&self) -> Value {
        let section =
            json!({"properties": self.properties(), "additionalProperties": self.allows_other_keys});
        json!({"description": self.summary, "additionalProperties": section})
    }

    /// The keys that are defined here, with their schemas.
    fn properties(&self) -> Map<String, Value> {
        let of = |schema: Value| schema["properties"].as_object().cloned().unwrap_or_default();
        let mut properties = of((self.schema)());
        if self.group == "connectors" {
            properties.extend(of(json_schema::<SourceSettings>()));
        }
        properties
    }
}

fn check<T: DeserializeOwned>(fields: &Value) -> Result<(), KeyProblem> {
    let result: Result<T, _> = serde_path_to_error::deserialize(fields);
    result.map(drop).map_err(|error| (error.path().to_string(), error.inner().to_string()))
}
