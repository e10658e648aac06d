//! APIs and credentials from the command line: `petstore=spec.yaml`, and `--auth petstore:VARIABLE`.

use super::apis::{api_section, is_variable};
use super::tree::{ConfigLeaf, ConfigNode, ConfigTable, SettingOrigin};
use super::{ConfigError, VariableLookup};
use ctx_core::{Identifier, nearest};
use serde_json::{Value, json};
use std::str::FromStr;

/// Generic words in the names of files and hosts, which do not identify an API.
const GENERIC_WORDS: [&str; 24] = [
    "api",
    "apis",
    "api-docs",
    "description",
    "descriptions",
    "doc",
    "docs",
    "index",
    "json",
    "latest",
    "localhost",
    "main",
    "master",
    "openapi",
    "public",
    "raw",
    "rest",
    "schema",
    "spec",
    "specs",
    "swagger",
    "www",
    "yaml",
    "yml",
];

/// An API in the form of the command line: `name=path`, `name=https://…`, or either without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiArgument {
    pub(super) name: String,
    /// A URL, or an absolute path.
    spec: String,
}

impl FromStr for ApiArgument {
    type Err = String;

    fn from_str(argument: &str) -> Result<Self, String> {
        let (name, spec) = split_name_and_spec(argument)?;
        if is_address(spec) {
            return Ok(Self { name, spec: spec.to_owned() });
        }
        let path = std::path::absolute(spec).map_err(|error| error.to_string())?;
        match path.is_file() {
            true => Ok(Self { name, spec: path.display().to_string() }),
            false => Err(format!("there is no file {}", path.display())),
        }
    }
}

/// Splits `name=spec`; without a name, derives one from the spec.
pub(crate) fn split_name_and_spec(argument: &str) -> Result<(String, &str), String> {
    const FORM: &str = "write PATH or URL, or name=PATH or name=URL";
    let argument = argument.trim();
    // Paths and URLs may contain `=`, too.
    let named = argument.split_once('=').filter(|(name, _)| !name.contains(['/', '\\', ':', '?']));
    let (name, spec) = named.map_or((None, argument), |(name, spec)| (Some(name.trim()), spec.trim()));
    if spec.is_empty() || name == Some("") {
        return Err(FORM.to_owned());
    }
    let name = match name {
        Some(name) => name.to_owned(),
        None => derive_name(spec).ok_or("no name can be derived from it: write name=PATH or name=URL")?,
    };
    Ok((name, spec))
}

impl ApiArgument {
    /// The section of the API. It allows `_meta.auth`: whoever starts the server is its user.
    pub(super) fn section(&self) -> Value {
        json!({ "spec": self.spec, "request_auth": true })
    }
}

fn is_address(spec: &str) -> bool {
    spec.starts_with("http://") || spec.starts_with("https://")
}

/// Derives a name from the path or URL of a description: its last word that is not generic.
fn derive_name(spec: &str) -> Option<String> {
    let (path, host) = match spec.split_once("://").filter(|_| is_address(spec)) {
        Some((_, rest)) => {
            let rest = rest.split(['?', '#']).next().unwrap_or_default();
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit('@').next().unwrap_or_default();
            let name = host.split(':').next().unwrap_or_default();
            // The top-level domain is skipped.
            (path, name.rsplit_once('.').map_or(name, |(name, _)| name))
        }
        None => (spec, ""),
    };
    let is_specific = |word: &&str| {
        let rest = word.strip_prefix(['v', 'V']).unwrap_or(word);
        let is_number = rest.chars().all(|letter| letter.is_ascii_digit());
        let has_letters = word.contains(|letter: char| letter.is_ascii_alphabetic());
        has_letters && !is_number && !GENERIC_WORDS.contains(&word.to_ascii_lowercase().as_str())
    };
    let parts = path.rsplit(['/', '\\']).chain([host]);
    let word = parts.into_iter().find_map(|part| part.split('.').find(is_specific))?;
    Some(Identifier::sanitize(word).to_string())
}

/// The variable that holds the credentials of an API or of one security scheme: `name:VARIABLE` or
/// `name.scheme:VARIABLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthArgument {
    target: String,
    variable: String,
}

impl FromStr for AuthArgument {
    type Err = String;

    fn from_str(argument: &str) -> Result<Self, String> {
        let (target, variable) = argument.rsplit_once(':').unwrap_or_default();
        let (target, variable) = (target.trim(), variable.trim());
        if target.is_empty() || !is_variable(variable) {
            return Err("write name:VARIABLE or name.scheme:VARIABLE, with the name of a variable".to_owned());
        }
        Ok(Self { target: target.to_owned(), variable: variable.to_owned() })
    }
}

/// Replaces the credentials of APIs by the values of variables.
pub(super) fn apply_auth(
    arguments: &[AuthArgument],
    tree: &mut ConfigTable,
    variables: VariableLookup<'_>,
) -> Result<(), ConfigError> {
    let mut replaced: Vec<(String, Option<String>)> = Vec::new();
    for AuthArgument { target, variable } in arguments {
        let problem = |reason: String| ConfigError::one(format!("--auth: {reason}"));
        let apis = match tree.entries.get_mut("apis") {
            Some(ConfigNode::Table(apis)) => &mut apis.entries,
            _ => return Err(problem(format!("there is no API `{target}`"))),
        };
        let names: Vec<&str> = apis.keys().map(String::as_str).collect();
        let Some((name, scheme)) = split(target, &names) else {
            let near =
                nearest(target, names).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(problem(format!("there is no API `{target}`{near}")));
        };
        let Some(value) = variables(variable).filter(|value| !value.is_empty()) else {
            return Err(problem(format!("the variable {variable} is not set, which `{target}` needs")));
        };
        let Some(ConfigNode::Table(section)) = apis.get_mut(&name) else {
            return Err(problem(format!("`{}` is not a section", api_section(&name))));
        };
        let is_duplicate = |(other, one): &(String, Option<String>)| {
            *other == name && (*one == scheme || one.is_none() || scheme.is_none())
        };
        if replaced.iter().any(is_duplicate) {
            return Err(problem(format!("`{name}` has credentials twice: give one, or one for each scheme")));
        }
        if !replaced.iter().any(|(other, _)| *other == name) {
            section.entries.remove("auth");
            section.entries.remove("auth_env");
        }
        let origin = || SettingOrigin { file: "--auth".to_owned(), line: 0 };
        let leaf = ConfigNode::Leaf(ConfigLeaf {
            value: value.into(),
            origin: origin(),
            variables: vec![variable.clone()],
        });
        let auth = match &scheme {
            None => leaf,
            Some(scheme) => ConfigNode::Table(ConfigTable {
                entries: [(scheme.clone(), leaf)].into(),
                origin: Some(origin()),
            }),
        };
        section.merge(ConfigTable { entries: [("auth".to_owned(), auth)].into(), origin: None });
        replaced.push((name, scheme));
    }
    Ok(())
}

/// Splits into API and security scheme; both may contain dots.
fn split(target: &str, names: &[&str]) -> Option<(String, Option<String>)> {
    if names.contains(&target) {
        return Some((target.to_owned(), None));
    }
    let scheme_of = |name: &&str| {
        let scheme = target.strip_prefix(name)?.strip_prefix('.')?;
        (!scheme.is_empty()).then(|| ((*name).to_owned(), Some(scheme.to_owned())))
    };
    names.iter().rev().find_map(scheme_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_is_named_by_the_last_specific_word_of_its_location() {
        for (spec, name) in [
            ("petstore.yaml", "petstore"),
            ("./specs/petstore.openapi.json", "petstore"),
            ("my pets.yml", "my_pets"),
            ("github/openapi.yaml", "github"),
            ("github/v3/api.json", "github"),
            ("api.github.com.yaml", "github"),
            ("https://petstore3.swagger.io/api/v3/openapi.json", "petstore3"),
            ("https://api.example.com/openapi.json?token=a/b", "example"),
            ("https://user:secret@www.example.com:8080", "example"),
            ("https://api.example.com/v1/shops/swagger", "shops"),
        ] {
            assert_eq!(derive_name(spec).as_deref(), Some(name), "{spec}");
        }
        for spec in
            ["openapi.yaml", "../spec.json", "http://127.0.0.1:8000/openapi.json", "http://localhost/v1"]
        {
            assert_eq!(derive_name(spec), None, "{spec}");
        }
    }

    #[test]
    fn an_explicit_name_takes_precedence_and_paths_may_contain_equals_signs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a=b.yaml");
        std::fs::write(&file, "").unwrap();
        let path = file.display().to_string();
        let api = |argument: &str| argument.parse::<ApiArgument>().map(|api| (api.name, api.spec));
        let is = |name: &str, spec: &str| Ok((name.to_owned(), spec.to_owned()));
        assert_eq!(api(&format!("pets={path}")), is("pets", &path));
        assert_eq!(api(&path), is("a_b", &path));
        assert_eq!(api("pets = https://example.com/x?a=b"), is("pets", "https://example.com/x?a=b"));
        assert_eq!(api("https://example.com/?a=b"), is("example", "https://example.com/?a=b"));
        for wrong in ["", "pets=", "=a.yaml", " = "] {
            assert!(api(wrong).unwrap_err().starts_with("write PATH or URL"), "{wrong}");
        }
        assert!(api("http://localhost/openapi.json").unwrap_err().contains("write name="));
        assert!(api("pets=gone.yaml").unwrap_err().starts_with("there is no file /"));
    }

    #[test]
    fn a_variable_is_for_an_api_or_for_one_of_its_schemes() {
        let auth = |argument: &str| argument.parse::<AuthArgument>().map(|auth| (auth.target, auth.variable));
        assert_eq!(auth("pets:TOKEN"), Ok(("pets".to_owned(), "TOKEN".to_owned())));
        assert_eq!(auth("pets.a:b:TOKEN"), Ok(("pets.a:b".to_owned(), "TOKEN".to_owned())));
        for wrong in ["", "pets", "pets:", ":TOKEN", "pets:sk-not a name"] {
            assert!(auth(wrong).is_err_and(|reason| !reason.contains("sk-")), "{wrong}");
        }
        let names = ["my", "my.pets"];
        let is = |name: &str, scheme: Option<&str>| Some((name.to_owned(), scheme.map(str::to_owned)));
        assert_eq!(split("my.pets", &names), is("my.pets", None));
        assert_eq!(split("my.pets.key", &names), is("my.pets", Some("key")));
        assert_eq!(split("my.key", &names), is("my", Some("key")));
        assert_eq!((split("other", &names), split("my.", &names)), (None, None));
    }
}
