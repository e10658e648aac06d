//! Selection of credentials by security requirements.

use super::*;
use crate::request::tests::operation;

fn secret(text: &str) -> Secret {
    Secret::new(text)
}

fn schemes() -> BTreeMap<String, SecurityScheme> {
    let key = |location, name: &str| SecurityScheme::Key { location, name: name.to_owned() };
    let oauth = SecurityScheme::ClientCredentials { token_url: "/token".to_owned(), scopes: Vec::new() };
    BTreeMap::from([
        ("app".to_owned(), key(ParameterLocation::Query, "app")),
        ("basic".to_owned(), SecurityScheme::Basic),
        ("bearer".to_owned(), SecurityScheme::Bearer),
        ("key".to_owned(), key(ParameterLocation::Header, "X-Key")),
        ("login".to_owned(), SecurityScheme::OtherToken),
        ("oauth".to_owned(), oauth),
        ("strange".to_owned(), SecurityScheme::Unknown("mutualTLS".to_owned())),
    ])
}

/// The credentials chosen for an operation with these alternative security requirements, each a set of
/// schemes.
fn chosen(security: &[&[&str]], credentials: &Credentials) -> Result<Vec<SchemeCredential>, ToolError> {
    let set =
        |names: &&[&str]| names.iter().map(|name| (name.to_string(), vec!["read".to_owned()])).collect();
    let operation = Operation { security: security.iter().map(set).collect(), ..operation("GET", "/pets") };
    choose(&operation, &schemes(), false, credentials)
}

fn other(credential: Credential) -> Credentials {
    Credentials { other: Some(credential), ..Credentials::default() }
}

fn key(location: ParameterLocation, name: &str, value: &str) -> SchemeCredential {
    SchemeCredential::Key { location, name: name.to_owned(), value: secret(value) }
}

#[test]
fn a_plain_secret_is_interpreted_by_the_security_scheme() {
    let plain = other(Credential::Plain(secret("who:knows")));
    for (scheme, expected) in [
        ("bearer", SchemeCredential::Bearer(secret("who:knows"))),
        ("login", SchemeCredential::Bearer(secret("who:knows"))),
        ("oauth", SchemeCredential::Bearer(secret("who:knows"))),
        ("key", key(ParameterLocation::Header, "X-Key", "who:knows")),
        ("basic", SchemeCredential::Basic { user: "who".to_owned(), password: secret("knows") }),
    ] {
        assert_eq!(chosen(&[&[scheme]], &plain).unwrap(), [expected], "{scheme}");
    }
    let chosen_for_basic = chosen(&[&["basic"]], &other(Credential::Plain(secret("key")))).unwrap();
    assert_eq!(chosen_for_basic, [SchemeCredential::Basic { user: "key".to_owned(), password: secret("") }]);
}

#[test]
fn the_first_satisfiable_requirement_is_chosen() {
    let bearer = other(Credential::Bearer(secret("token")));
    let chosen_credentials = chosen(&[&["strange"], &["key"], &["bearer"], &["login"]], &bearer).unwrap();
    assert_eq!(chosen_credentials, [SchemeCredential::Bearer(secret("token"))]);
    let both = Credentials {
        by_scheme: BTreeMap::from([
            ("app".to_owned(), Credential::Key(secret("a"))),
            ("key".to_owned(), Credential::Key(secret("k"))),
        ]),
        other: None,
    };
    let chosen_credentials = chosen(&[&["bearer"], &["app", "key"]], &both).unwrap();
    assert_eq!(
        chosen_credentials,
        [key(ParameterLocation::Query, "app", "a"), key(ParameterLocation::Header, "X-Key", "k")]
    );
}

#[test]
fn one_secret_is_not_sent_for_two_schemes() {
    let plain = other(Credential::Plain(secret("secret")));
    assert!(chosen(&[&["app", "key"]], &plain).is_err());
    let named = BTreeMap::from([("app".to_owned(), Credential::Key(secret("a")))]);
    let chosen_credentials = chosen(&[&["app", "key"]], &Credentials { by_scheme: named, ..plain }).unwrap();
    assert_eq!(
        chosen_credentials,
        [key(ParameterLocation::Query, "app", "a"), key(ParameterLocation::Header, "X-Key", "secret")]
    );
}

#[test]
fn an_operation_without_security_gets_no_credentials() {
    let bearer = other(Credential::Bearer(secret("token")));
    assert_eq!(chosen(&[], &bearer).unwrap(), []);
    // Where credentials are optional, they are sent if available.
    assert_eq!(chosen(&[&[], &["bearer"]], &bearer).unwrap(), [SchemeCredential::Bearer(secret("token"))]);
    assert_eq!(chosen(&[&["bearer"], &[]], &Credentials::default()).unwrap(), []);
}

#[test]
fn a_description_without_any_security_gets_the_configured_credentials() {
    let operation = operation("GET", "/pets");
    let plain = other(Credential::Plain(secret("token")));
    let silent = |schemes: &BTreeMap<String, SecurityScheme>, credentials: &Credentials| {
        choose(&operation, schemes, true, credentials).unwrap()
    };
    assert_eq!(silent(&BTreeMap::new(), &plain), [SchemeCredential::Bearer(secret("token"))]);
    assert_eq!(silent(&BTreeMap::new(), &Credentials::default()), []);
    let own_key = BTreeMap::from([("key".to_owned(), schemes()["key"].clone())]);
    assert_eq!(silent(&own_key, &plain), [key(ParameterLocation::Header, "X-Key", "token")]);
    let bearer = other(Credential::Bearer(secret("token")));
    assert_eq!(silent(&own_key, &bearer), [SchemeCredential::Bearer(secret("token"))]);
}

#[test]
fn an_operation_declared_public_gets_no_credentials() {
    let open = Operation { security: vec![BTreeMap::new()], ..operation("GET", "/pets") };
    let description = Description { operations: vec![open.clone()], ..Description::default() };
    assert!(declares_no_security(&description));
    let plain = other(Credential::Plain(secret("token")));
    assert_eq!(choose(&open, &schemes(), true, &plain).unwrap(), []);
}

#[test]
fn a_client_gets_the_scopes_of_the_operation_unless_it_names_its_own() {
    for (own, expected) in [(vec![], "read"), (vec!["all".to_owned()], "all")] {
        let client = Credential::ClientCredentials {
            id: "id".to_owned(),
            secret: secret("s"),
            scopes: own,
            token_url: None,
        };
        let chosen_credentials = chosen(&[&["oauth"]], &other(client)).unwrap();
        let [SchemeCredential::Token(request)] = chosen_credentials.as_slice() else {
            panic!("{chosen_credentials:?}")
        };
        assert_eq!(
            (request.scopes.as_slice(), request.token_url.as_str()),
            (&[expected.to_owned()][..], "/token")
        );
    }
}

#[test]
fn missing_credentials_are_named() {
    let wrong = other(Credential::Basic { user: "u".to_owned(), password: secret("hunter2!") });
    let error =
        chosen(&[&["app", "bearer"], &["key"], &["oauth"], &["strange"], &["gone"]], &wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConfigured);
    assert_eq!(
        error.message(),
        "`operation` needs credentials that are not configured: `app` (a key for the query `app`) and `bearer` (a \
         bearer token); or `key` (a key for the header `X-Key`); or `oauth` (a client's id and secret, or a \
         bearer token); or `strange` (of the kind `mutualTLS`, which is not supported); or `gone` (which the \
         document does not describe); set `auth` or `auth_env` of the API, by the name of the scheme where there \
         is more than one"
    );
}

#[test]
fn debug_output_of_credentials_has_no_secret() {
    let credentials = other(Credential::Basic { user: "u".to_owned(), password: secret("hunter2!") });
    assert!(!format!("{credentials:?}").contains("hunter2"));
    let chosen_credentials = chosen(&[&["basic"]], &credentials).unwrap();
    assert!(!format!("{chosen_credentials:?}").contains("hunter2"));
}
