//! Parses credentials from the configuration and from `_meta.auth`.
//!
//! Error messages never repeat a value: each may be the secret itself.

use super::{Credential, Credentials};
use crate::settings::ApiSettings;
use ctx_core::{Call, ErrorKind, Secret, ToolError};
use serde_json::{Map, Value};

/// Characters of an unknown key that an error message shows.
const KEY_SHOWN_MAX: usize = 64;

/// The field that holds the type of a credential.
const TYPE: &str = "type";

/// Types of credentials, with their aliases, and the other fields of each.
const CREDENTIAL_TYPES: [(&[&str], &[&str]); 4] = [
    (&["bearer"], &["token"]),
    (&["basic"], &["username", "password"]),
    (&["api_key", "apiKey"], &["key", "value"]),
    (&["oauth2", "client_credentials"], &["client_id", "client_secret", "scopes", "token_url"]),
];

/// Credentials that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCredentials(String);

impl Credentials {
    /// Parses credentials: a string, interpreted by the security scheme; a table with a `type` and the fields
    /// of that type; or a table of these, keyed by the name of the security scheme.
    pub fn parse(value: &Value) -> Result<Self, InvalidCredentials> {
        let Value::Object(fields) = value else {
            return Ok(Self { other: Some(parse_credential(value)?), ..Self::default() });
        };
        // A security scheme may itself be named `type`; its credential is then a table.
        if fields.get(TYPE).is_some_and(|credential_type| !credential_type.is_object()) {
            return Ok(Self { other: Some(parse_credential(value)?), ..Self::default() });
        }
        if fields.is_empty() {
            return Err(invalid("there are no credentials in it"));
        }
        let named = |(scheme, value): (&String, &Value)| {
            let credential = parse_credential(value)
                .map_err(|error| InvalidCredentials(format!("`{}`: {error}", shorten_key(scheme))))?;
            Ok((scheme.clone(), credential))
        };
        let by_scheme = fields.iter().map(named).collect::<Result<_, _>>()?;
        Ok(Self { by_scheme, other: None })
    }

    fn all(&self) -> impl Iterator<Item = &Credential> {
        self.by_scheme.values().chain(&self.other)
    }
}

/// The credentials for this API that came with the call (`_meta.auth`), if any.
pub(crate) fn caller_credentials(
    settings: &ApiSettings,
    call: &Call,
) -> Result<Option<Credentials>, ToolError> {
    let name = &settings.name;
    let Some(value) = call.auth(name) else { return Ok(None) };
    if !settings.accepts_caller_credentials {
        let message = format!(
            "`{name}` does not accept credentials from callers in `_meta.auth`; set `request_auth = true` in \
             its section to allow them"
        );
        return Err(ToolError::new(ErrorKind::Forbidden, message));
    }
    let invalid_auth =
        |why: &str| ToolError::new(ErrorKind::BadRequest, format!("`_meta.auth` for `{name}`: {why}"));
    let credentials = Credentials::parse(value).map_err(|error| invalid_auth(&error.0))?;
    let sends_elsewhere =
        |one: &Credential| matches!(one, Credential::ClientCredentials { token_url: Some(_), .. });
    if credentials.all().any(sends_elsewhere) {
        // SSRF: a caller must not choose the endpoint that the client secret is sent to.
        return Err(invalid_auth("callers may not choose the token endpoint; leave out `token_url`"));
    }
    Ok(Some(credentials))
}

/// One credential: a string, or a table with a `type`.
fn parse_credential(value: &Value) -> Result<Credential, InvalidCredentials> {
    let fields = match value {
        Value::String(_) => return Ok(Credential::Plain(parse_secret(value, "it")?)),
        Value::Object(fields) => fields,
        _ => return Err(invalid("must be a string, or a table with a `type`")),
    };
    let credential_type = fields.get(TYPE).and_then(Value::as_str);
    let Some((names, keys)) = CREDENTIAL_TYPES
        .iter()
        .find(|(names, _)| credential_type.is_some_and(|credential_type| names.contains(&credential_type)))
    else {
        return Err(invalid("needs a `type`: bearer, basic, api_key or oauth2"));
    };
    if let Some(unknown) = fields.keys().find(|key| *key != TYPE && !keys.contains(&key.as_str())) {
        let (unknown, keys) = (shorten_key(unknown), keys.join(", "));
        return Err(InvalidCredentials(format!("`{unknown}` is unknown; known here: {keys}")));
    }
    let secret_at = |key: &'static str| match fields.get(key) {
        Some(value) => parse_secret(value, &format!("`{key}`")),
        None => Err(missing_key(key)),
    };
    match names[0] {
        "bearer" => Ok(Credential::Bearer(secret_at("token")?)),
        "basic" => Ok(Credential::Basic {
            user: non_empty_text(fields, "username")?,
            // May be empty: some services take an API key as the user name.
            password: Secret::new(required_text(fields, "password")?),
        }),
        "api_key" => match (fields.contains_key("key"), fields.contains_key("value")) {
            (true, true) => Err(invalid("has both `key` and `value`, which mean the same; set one")),
            (false, true) => Ok(Credential::Key(secret_at("value")?)),
            (_, false) => Ok(Credential::Key(secret_at("key")?)),
        },
        _ => Ok(Credential::ClientCredentials {
            id: non_empty_text(fields, "client_id")?,
            secret: secret_at("client_secret")?,
            scopes: parse_scopes(fields.get("scopes"))?,
            token_url: fields.get("token_url").map(parse_token_url).transpose()?,
        }),
    }
}

fn parse_secret(value: &Value, subject: &str) -> Result<Secret, InvalidCredentials> {
    match value.as_str() {
        Some("") => Err(InvalidCredentials(format!("{subject} must not be empty"))),
        Some(text) => Ok(Secret::new(text)),
        None => Err(InvalidCredentials(format!("{subject} must be a string"))),
    }
}

fn required_text(fields: &Map<String, Value>, key: &str) -> Result<String, InvalidCredentials> {
    let value = fields.get(key).ok_or_else(|| missing_key(key))?;
    let text = value.as_str().ok_or_else(|| InvalidCredentials(format!("`{key}` must be a string")))?;
    Ok(text.to_owned())
}

fn non_empty_text(fields: &Map<String, Value>, key: &str) -> Result<String, InvalidCredentials> {
    match required_text(fields, key)? {
        text if text.is_empty() => Err(InvalidCredentials(format!("`{key}` must not be empty"))),
        text => Ok(text),
    }
}

/// Scopes: a list, or one string with spaces between them as in OAuth.
fn parse_scopes(value: Option<&Value>) -> Result<Vec<String>, InvalidCredentials> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.split_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().ok_or_else(|| invalid("`scopes` must be strings"))
        }
        Some(_) => Err(invalid("`scopes` must be a list of strings")),
    }
}

fn parse_token_url(value: &Value) -> Result<String, InvalidCredentials> {
    let is_address = |text: &&str| text.starts_with("https://") || text.starts_with("http://");
    let address = value.as_str().filter(is_address).filter(|text| url::Url::parse(text).is_ok());
    address.map(str::to_owned).ok_or_else(|| invalid("`token_url` must be a URL that begins with https://"))
}

fn missing_key(key: &str) -> InvalidCredentials {
    InvalidCredentials(format!("`{key}` is missing"))
}

fn invalid(why: &str) -> InvalidCredentials {
    InvalidCredentials(why.to_owned())
}

/// A key for an error message: shortened, without control characters. A caller may send anything.
fn shorten_key(key: &str) -> String {
    key.chars().filter(|letter| !letter.is_control()).take(KEY_SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn single_credential(value: Value) -> Credential {
        let parsed = Credentials::parse(&value).unwrap();
        assert!(parsed.by_scheme.is_empty());
        parsed.other.unwrap()
    }

    fn error_text(value: Value) -> String {
        Credentials::parse(&value).unwrap_err().to_string()
    }

    fn client(scopes: &[&str], token_url: Option<&str>) -> Credential {
        Credential::ClientCredentials {
            id: "me".to_owned(),
            secret: Secret::new("s"),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            token_url: token_url.map(str::to_owned),
        }
    }

    #[test]
    fn every_credential_type_is_parsed() {
        assert_eq!(single_credential(json!("abc")), Credential::Plain(Secret::new("abc")));
        assert_eq!(
            single_credential(json!({"type": "bearer", "token": "t"})),
            Credential::Bearer(Secret::new("t"))
        );
        let basic = |password| Credential::Basic { user: "u".to_owned(), password: Secret::new(password) };
        assert_eq!(single_credential(json!({"type": "basic", "username": "u", "password": "p"})), basic("p"));
        assert_eq!(single_credential(json!({"type": "basic", "username": "u", "password": ""})), basic(""));
        for value in [
            json!({"type": "api_key", "key": "k"}),
            json!({"type": "apiKey", "key": "k"}),
            json!({"type": "api_key", "value": "k"}),
        ] {
            assert_eq!(single_credential(value), Credential::Key(Secret::new("k")));
        }
        for credential_type in ["oauth2", "client_credentials"] {
            let with = |more: Value| {
                let mut value = json!({"type": credential_type, "client_id": "me", "client_secret": "s"});
                value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                single_credential(value)
            };
            assert_eq!(with(json!({})), client(&[], None));
            assert_eq!(with(json!({"scopes": ["a", "b"]})), client(&["a", "b"], None));
            assert_eq!(with(json!({"scopes": "a b"})), client(&["a", "b"], None));
            assert_eq!(with(json!({"token_url": "https://t/x"})), client(&[], Some("https://t/x")));
        }
    }

    #[test]
    fn a_table_without_a_type_is_by_scheme() {
        let parsed =
            Credentials::parse(&json!({"key": "k", "type": {"type": "bearer", "token": "t"}})).unwrap();
        assert_eq!(parsed.other, None);
        assert_eq!(parsed.by_scheme["key"], Credential::Plain(Secret::new("k")));
        assert_eq!(parsed.by_scheme["type"], Credential::Bearer(Secret::new("t")));
    }

    #[test]
    fn errors_name_the_key() {
        for (value, why) in [
            (json!(5), "must be a string, or a table with a `type`"),
            (json!(null), "must be a string, or a table with a `type`"),
            (json!(""), "it must not be empty"),
            (json!({}), "there are no credentials in it"),
            (json!({"type": "magic"}), "needs a `type`: bearer, basic, api_key or oauth2"),
            (json!({"type": 5}), "needs a `type`: bearer, basic, api_key or oauth2"),
            (json!({"type": "bearer"}), "`token` is missing"),
            (json!({"type": "bearer", "token": 5}), "`token` must be a string"),
            (json!({"type": "bearer", "token": ""}), "`token` must not be empty"),
            (json!({"type": "bearer", "tokn": "x"}), "`tokn` is unknown; known here: token"),
            (json!({"type": "basic", "username": "u"}), "`password` is missing"),
            (json!({"type": "basic", "username": "", "password": "p"}), "`username` must not be empty"),
            (json!({"type": "api_key"}), "`key` is missing"),
            (
                json!({"type": "api_key", "key": "a", "value": "b"}),
                "has both `key` and `value`, which mean the same; set one",
            ),
            (json!({"type": "oauth2", "client_id": "i"}), "`client_secret` is missing"),
            (
                json!({"type": "oauth2", "client_id": "i", "client_secret": "s", "scopes": [1]}),
                "`scopes` must be strings",
            ),
            (
                json!({"type": "oauth2", "client_id": "i", "client_secret": "s", "token_url": "/t"}),
                "`token_url` must be a URL that begins with https://",
            ),
            (json!({"key": {"token": "x"}}), "`key`: needs a `type`: bearer, basic, api_key or oauth2"),
            (json!({"key": [1]}), "`key`: must be a string, or a table with a `type`"),
        ] {
            assert_eq!(error_text(value.clone()), why, "{value}");
        }
        let long = error_text(json!({"K".repeat(1000): 1}));
        assert_eq!(long.matches('K').count(), KEY_SHOWN_MAX, "{long}");
    }

    /// Arbitrary JSON made of the field names of credentials, and of secrets.
    fn arbitrary_value() -> impl Strategy<Value = Value> {
        let credential_type =
            prop::sample::select(vec!["bearer", "basic", "api_key", "oauth2", "client_credentials"]);
        let leaf = prop_oneof![
            4 => "sekrit[a-z]{0,8}".prop_map(Value::from),
            2 => credential_type.prop_map(Value::from),
            1 => (7_770_000..7_779_999).prop_map(|number: i32| json!(number)),
            1 => Just(Value::Null),
            1 => Just(json!("")),
        ];
        let keys = [
            "type",
            "token",
            "username",
            "password",
            "key",
            "value",
            "client_id",
            "client_secret",
            "scopes",
            "token_url",
            "scheme",
        ];
        let key = prop::sample::select(keys.to_vec()).prop_map(str::to_owned);
        leaf.prop_recursive(3, 24, 6, move |inner| {
            let table = prop::collection::vec((key.clone(), inner.clone()), 0..6);
            prop_oneof![
                4 => table.prop_map(|fields| Value::Object(fields.into_iter().collect())),
                1 => prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            ]
        })
    }

    proptest! {
        #[test]
        fn errors_and_debug_output_never_contain_a_value(value in arbitrary_value()) {
            let parsed = Credentials::parse(&value);
            if let Err(error) = &parsed {
                let message = format!("{error} {error:?}");
                prop_assert!(!message.contains("sekrit") && !message.contains("777"), "{}", message);
            }
            let printed = format!("{parsed:?}");
            prop_assert!(!printed.contains("sekrit"), "{}", printed);
        }
    }
}
