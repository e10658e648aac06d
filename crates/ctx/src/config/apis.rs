//! `[apis.<name>]`: HTTP services with an OpenAPI description. `[frozen_params]`: parameter values for all of
//! them.

use super::scripts::RateSetting;
use super::settings::{LimitSettings, seconds};
use super::tree::{ConfigLeaf, ConfigNode, ConfigTable};
use super::upstreams::reserved_name_problem;
use super::{Config, ConfigError, VariableLookup};
use ctx_core::{Identifier, Redactor, Secret};
use ctx_openapi::{ApiError, ApiLimits, ApiSettings, Credentials, InvalidPattern, Selection, Spec};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;

/// The configuration group of APIs.
const GROUP: &str = "apis";
/// The section of frozen parameters for all APIs, and the key of those for one API.
pub(crate) const FROZEN_PARAMETERS: &str = "frozen_params";
/// Keys in `auth` that are not secret.
const PUBLIC_KEYS: [&str; 5] = ["type", "username", "client_id", "scopes", "token_url"];
/// Replaces a secret in displayed values.
const MASK: &str = "***";

/// `[apis.<name>]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiSection {
    /// The OpenAPI description: a path relative to the workspace, or a URL such as
    /// `https://example.com/openapi.json`.
    spec: String,
    /// The base URL of the API, such as `https://example.com/v1`; overrides the one in the description.
    base_url: Option<String>,
    /// Credentials: a string such as `"${TOKEN}"`, used as the security scheme of the description requires;
    /// or a table with the `type` `bearer` (`token`), `basic` (`username`, `password`), `api_key` (`key`) or
    /// `oauth2` (`client_id`, `client_secret`, and optionally `scopes` and `token_url`); or a table of these,
    /// keyed by the name of the security scheme in the description.
    #[schemars(schema_with = "text_or_table")]
    auth: Option<AuthSetting>,
    /// The name of an environment variable that holds the credentials, or a table of such names, keyed by
    /// security scheme. If the variable is not set, the API is used without credentials. Cannot be combined
    /// with `auth`.
    #[schemars(schema_with = "text_or_table")]
    auth_env: Option<AuthVariables>,
    /// Whether callers may send credentials of their own, in `_meta.auth` of a request.
    #[serde(default)]
    request_auth: bool,
    /// The operations to include, as patterns: `tag:pets`, `/pets/**`, `GET /pets/*` or names like `list_*`;
    /// all when absent.
    #[serde(default)]
    include: Vec<String>,
    /// The operations to exclude, even if `include` matches them.
    #[serde(default)]
    exclude: Vec<String>,
    /// Parameter values that are always sent. Callers neither see nor set these parameters. They override
    /// those in `[frozen_params]`.
    #[serde(default)]
    frozen_params: FrozenParameters,
    /// Headers to send with every request.
    #[serde(default)]
    headers: BTreeMap<String, Secret>,
    /// The proxy for requests, such as `http://proxy.example.com:3128`.
    proxy: Option<Secret>,
    /// Rate limit for all operations together, such as `10/s` or `100/m`; unlimited when absent.
    rate_limit: Option<RateSetting>,
    /// Maximum number of concurrent calls, further calls wait; `limits.api_calls` when absent.
    concurrency: Option<NonZeroU32>,
    /// Seconds one call may take; `limits.api_timeout` when absent.
    timeout: Option<NonZeroU32>,
    /// Whether its functions are listed to clients one by one, as `<name>__<function>`; scripts can call them
    /// either way.
    #[serde(default)]
    expose: bool,
}

/// Schema of a string, or of a table with any keys.
fn text_or_table(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": ["string", "object"], "additionalProperties": true})
}

/// Parsed credentials. They have a parser of their own, because serde's error messages would quote the
/// secret.
#[derive(Clone, Debug)]
struct AuthSetting(Credentials);

impl<'de> Deserialize<'de> for AuthSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Credentials::parse(&Value::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

/// Names of environment variables, checked by [`resolve_auth_variables`].
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum AuthVariables {
    One(String),
    ByScheme(BTreeMap<String, String>),
}

/// Frozen parameter values. `Debug` omits the values, as some are secret.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub(crate) struct FrozenParameters(BTreeMap<String, Value>);

impl fmt::Debug for FrozenParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl ApiSection {
    /// Invalid keys and their problems; an empty key stands for the section itself.
    pub(super) fn problems(&self, name: &str) -> Vec<(&'static str, String)> {
        let mut problems: Vec<_> =
            reserved_name_problem(name).map(|problem| ("", problem)).into_iter().collect();
        let identifier = Identifier::sanitize(name);
        if self.spec.trim().is_empty() {
            problems.push(("spec", "must not be empty".to_owned()));
        }
        let is_address = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        if self.base_url.as_ref().is_some_and(|url| !is_address(url)) {
            problems.push(("base_url", "must begin with https:// or http://".to_owned()));
        }
        for (key, patterns) in [("include", &self.include), ("exclude", &self.exclude)] {
            if let Err(error) = Selection::new(patterns.iter().map(String::as_str), []) {
                problems.push((key, error.to_string()));
            }
        }
        if problems.is_empty()
            && let Err(error) = self.settings(identifier, Path::new("")).and_then(|settings| settings.check())
        {
            let key = match error {
                ApiError::Header(_) => "headers",
                ApiError::Address(_) => "spec",
                ApiError::Base(_) => "base_url",
                ApiError::Proxy => "proxy",
            };
            problems.push((key, error.to_string()));
        }
        problems
    }

    fn operations(&self) -> Result<Selection, InvalidPattern> {
        Selection::new(self.include.iter().map(String::as_str), self.exclude.iter().map(String::as_str))
    }

    /// Converts the section to settings, without limits and shared frozen parameters. Resolves paths against
    /// `folder`.
    fn settings(&self, name: Identifier, folder: &Path) -> Result<ApiSettings, ApiError> {
        let headers = self.headers.iter();
        Ok(ApiSettings {
            base_url: self.base_url.clone(),
            // Invalid patterns were reported when the configuration was loaded.
            operations: self.operations().unwrap_or_default(),
            frozen: self.frozen_params.0.clone(),
            credentials: self.auth.clone().map(|AuthSetting(credentials)| credentials).unwrap_or_default(),
            accepts_caller_credentials: self.request_auth,
            headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(),
            proxy: self.proxy.clone(),
            rate_limit: self.rate_limit.map(RateSetting::limit),
            exposed: self.expose,
            ..ApiSettings::new(name, Spec::parse(self.spec.trim(), folder)?)
        })
    }

    /// The keys in `auth_env` whose variables are not set, with the variables.
    fn unset_variables(&self) -> Vec<(String, &str)> {
        let credentials = self.auth.as_ref().map(|AuthSetting(credentials)| credentials);
        match &self.auth_env {
            Some(AuthVariables::One(variable)) if credentials.is_none() => {
                vec![("auth_env".to_owned(), variable)]
            }
            Some(AuthVariables::ByScheme(variables)) => {
                let is_unset = |scheme: &str| {
                    credentials.is_none_or(|credentials| !credentials.by_scheme.contains_key(scheme))
                };
                let unset = variables.iter().filter(|(scheme, _)| is_unset(scheme));
                unset.map(|(scheme, name)| (format!("auth_env.{scheme}"), name.as_str())).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl LimitSettings {
    fn api(&self) -> ApiLimits {
        ApiLimits {
            call: seconds(self.api_timeout),
            response_bytes: self.api_response_bytes.get() as usize,
            in_flight: self.api_calls.get() as usize,
        }
    }
}

impl Config {
    /// The settings of the APIs that `may_run` selects, and warnings about all APIs.
    pub(crate) fn apis(&self, may_run: &dyn Fn(&str) -> bool) -> (Vec<ApiSettings>, Vec<String>) {
        let mut warnings = Vec::new();
        let mut apis = Vec::new();
        for (section_name, section) in &self.settings.apis {
            for (key, variable) in section.unset_variables() {
                let position = self.message_prefix(&[GROUP, section_name, "auth_env"]);
                warnings.push(format!(
                    "{position}`{GROUP}.{section_name}.{key}` names the variable {variable}, which is not set: \
                     `{section_name}` is called without these credentials"
                ));
            }
            if !may_run(&api_section(section_name)) {
                continue;
            }
            let name = Identifier::sanitize(section_name);
            // Cannot fail: the section was checked when the configuration was loaded.
            let Ok(mut settings) = section.settings(name, &self.root) else { continue };
            for (parameter, value) in &self.settings.frozen_params.0 {
                settings.frozen.entry(parameter.clone()).or_insert_with(|| value.clone());
            }
            settings.limits = self.settings.limits.api();
            settings.limits.call = section.timeout.map_or(settings.limits.call, seconds);
            let section_limit = section.concurrency.map(|count| count.get() as usize);
            settings.limits.in_flight = section_limit.unwrap_or(settings.limits.in_flight);
            apis.push(settings);
        }
        (apis, warnings)
    }
}

/// The name of an API's section.
pub(crate) fn api_section(name: &str) -> String {
    format!("{GROUP}.{name}")
}

/// Resolves `auth_env`: stores the values of the named variables as `auth`.
pub(super) fn resolve_auth_variables(
    tree: &mut ConfigTable,
    variables: VariableLookup<'_>,
) -> Result<(), ConfigError> {
    let Some(ConfigNode::Table(apis)) = tree.entries.get_mut(GROUP) else { return Ok(()) };
    let mut problems = Vec::new();
    for (name, node) in &mut apis.entries {
        let ConfigNode::Table(section) = node else { continue };
        let Some(named) = section.entries.get("auth_env") else { continue };
        let position =
            section.origin_of(&["auth_env".to_owned()]).map_or_else(String::new, |at| format!("{at}: "));
        if section.entries.contains_key("auth") {
            problems.push(format!("{position}`{GROUP}.{name}.auth_env`: cannot be combined with `auth`"));
            continue;
        }
        match variable_values(named, variables) {
            Ok(Some(auth)) => {
                section.entries.insert("auth".to_owned(), auth);
            }
            Ok(None) => {}
            Err(why) => problems.push(format!("{position}`{GROUP}.{name}.auth_env`: {why}")),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}

/// The values of the named variables, without those that are not set.
fn variable_values(named: &ConfigNode, variables: VariableLookup<'_>) -> Result<Option<ConfigNode>, String> {
    // The message does not quote the value: it may be a secret in place of a variable's name.
    let invalid =
        || "must be the name of a variable like `API_TOKEN`, or a table of such names by scheme".to_owned();
    match named {
        ConfigNode::Leaf(leaf) => {
            let name = leaf.value.as_str().filter(|name| is_variable(name)).ok_or_else(invalid)?;
            let value = variables(name).filter(|value| !value.is_empty());
            let leaf = |value: String| ConfigLeaf {
                value: value.into(),
                origin: leaf.origin.clone(),
                variables: vec![name.to_owned()],
            };
            Ok(value.map(|value| ConfigNode::Leaf(leaf(value))))
        }
        ConfigNode::Table(table) => {
            let mut entries = BTreeMap::new();
            for (scheme, named) in &table.entries {
                let ConfigNode::Leaf(_) = named else { return Err(invalid()) };
                entries.extend(variable_values(named, variables)?.map(|value| (scheme.clone(), value)));
            }
            let found = ConfigTable { entries, origin: table.origin.clone() };
            Ok((!found.entries.is_empty()).then_some(ConfigNode::Table(found)))
        }
    }
}

/// Whether this is a valid name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(is_allowed)
}

/// Whether a leaf is secret by the rules for API sections.
pub(super) fn is_secret(tree: &ConfigTable, path: &[String], leaf: &ConfigLeaf) -> bool {
    let keys: Vec<&str> = path.iter().map(String::as_str).collect();
    match keys.as_slice() {
        [GROUP, _, "auth", .., key] if PUBLIC_KEYS.contains(key) => {
            let sibling = |key: &str| match tree.at(&[&keys[..keys.len() - 1], &[key]].concat()) {
                Some(ConfigNode::Leaf(leaf)) => Some(&leaf.value),
                _ => None,
            };
            // Without a `type` beside it, the key is the name of a security scheme. A user name with an empty
            // password is an API key.
            let is_empty = |password: &Value| password.as_str() == Some("");
            sibling("type").is_none() || (*key == "username" && sibling("password").is_some_and(is_empty))
        }
        [GROUP, _, "auth", ..] => true,
        [GROUP, _, "headers" | FROZEN_PARAMETERS, ..] | [GROUP, _, "proxy"] | [FROZEN_PARAMETERS, ..] => {
            !leaf.variables.is_empty()
        }
        _ => false,
    }
}

/// Masks literal secrets in a value; `${VAR}` references stay.
pub(super) fn mask_secrets(value: Value, is_secret: bool) -> Value {
    match value {
        Value::String(text) if is_secret && !text.contains("${") => MASK.into(),
        Value::Array(items) => items.into_iter().map(|item| mask_secrets(item, is_secret)).collect(),
        Value::Object(fields) => {
            let field = |(key, value): (String, Value)| {
                let is_public = PUBLIC_KEYS.contains(&key.as_str()) && is_secret;
                let is_secret = (is_secret || key == "auth" || Redactor::is_secret_key(&key)) && !is_public;
                (key, mask_secrets(value, is_secret))
            };
            Value::Object(fields.into_iter().map(field).collect())
        }
        other => other,
    }
}
