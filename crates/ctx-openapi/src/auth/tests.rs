//! Selection of credentials by security requirements.

use super::*;
use crate::request::tests::operation;

fn secret(text: &str) -> Secret {
    Secret::new(text)
}

fn schemes() -> BTreeMap<String, Scheme> {
    let key = |place, name: &str| Scheme::Key { place, name: name.to_owned() };
    let oauth = Scheme::ClientCredentials { token_url: "/token".to_owned(), scopes: Vec::new() };
    BTreeMap::from([
        ("app".to_owned(), key(Place::Query, "app")),
        ("basic".to_owned(), Scheme::Basic),
        ("bearer".to_owned(), Scheme::Bearer),
        ("key".to_owned(), key(Place::Header, "X-Key")),
        ("login".to_owned(), Scheme::OtherToken),
        ("oauth".to_owned(), oauth),
        ("strange".to_owned(), Scheme::Unknown("mutualTLS".to_owned())),
    ])
}

/// The credentials chosen for an operation with these alternative security requirements, each a set of
/// schemes.
fn chosen(security: &[&[&str]], credentials: &Credentials) -> Result<Vec<Grant>, ToolError> {
    let set =
        |names: &&[&str]| names.iter().map(|name| (name.to_string(), vec!["read".to_owned()])).collect();
    let operation = Operation { security: security.iter().map(set).collect(), ..operation("GET", "/pets") };
    choose(&operation, &schemes(), false, credentials)
}

fn other(credential: Credential) -> Credentials {
    Credentials { other: Some(credential), ..Credentials::default() }
}

fn key(place: Place, name: &str, value: &str) -> Grant {
    Grant::Key { place, name: name.to_owned(), value: secret(value) }
}

#[test]
fn a_plain_secret_is_what_the_scheme_takes_it_for() {
    let plain = other(Credential::Plain(secret("who:knows")));
    for (scheme, expected) in [
        ("bearer", Grant::Bearer(secret("who:knows"))),
        ("login", Grant::Bearer(secret("who:knows"))),
        ("oauth", Grant::Bearer(secret("who:knows"))),
        ("key", key(Place::Header, "X-Key", "who:knows")),
        ("basic", Grant::Basic { user: "who".to_owned(), password: secret("knows") }),
    ] {
        assert_eq!(chosen(&[&[scheme]], &plain).unwrap(), [expected], "{scheme}");
    }
    let alone = chosen(&[&["basic"]], &other(Credential::Plain(secret("key")))).unwrap();
    assert_eq!(alone, [Grant::Basic { user: "key".to_owned(), password: secret("") }]);
}

#[test]
fn the_first_way_that_is_open_is_taken() {
    let bearer = other(Credential::Bearer(secret("token")));
    let grants = chosen(&[&["strange"], &["key"], &["bearer"], &["login"]], &bearer).unwrap();
    assert_eq!(grants, [Grant::Bearer(secret("token"))]);
    let both = Credentials {
        by_scheme: BTreeMap::from([
            ("app".to_owned(), Credential::Key(secret("a"))),
            ("key".to_owned(), Credential::Key(secret("k"))),
        ]),
        other: None,
    };
    let grants = chosen(&[&["bearer"], &["app", "key"]], &both).unwrap();
    assert_eq!(grants, [key(Place::Query, "app", "a"), key(Place::Header, "X-Key", "k")]);
}

#[test]
fn one_secret_is_not_sent_for_two_schemes() {
    let plain = other(Credential::Plain(secret("secret")));
    assert!(chosen(&[&["app", "key"]], &plain).is_err());
    let named = BTreeMap::from([("app".to_owned(), Credential::Key(secret("a")))]);
    let grants = chosen(&[&["app", "key"]], &Credentials { by_scheme: named, ..plain }).unwrap();
    assert_eq!(grants, [key(Place::Query, "app", "a"), key(Place::Header, "X-Key", "secret")]);
}

#[test]
fn who_asks_for_nothing_gets_nothing() {
    let bearer = other(Credential::Bearer(secret("token")));
    assert_eq!(chosen(&[], &bearer).unwrap(), []);
    // Where credentials are optional, they are sent if available.
    assert_eq!(chosen(&[&[], &["bearer"]], &bearer).unwrap(), [Grant::Bearer(secret("token"))]);
    assert_eq!(chosen(&[&["bearer"], &[]], &Credentials::default()).unwrap(), []);
}

#[test]
fn a_document_that_asks_nowhere_gets_what_is_configured() {
    let operation = operation("GET", "/pets");
    let plain = other(Credential::Plain(secret("token")));
    let silent = |schemes: &BTreeMap<String, Scheme>, credentials: &Credentials| {
        choose(&operation, schemes, true, credentials).unwrap()
    };
    assert_eq!(silent(&BTreeMap::new(), &plain), [Grant::Bearer(secret("token"))]);
    assert_eq!(silent(&BTreeMap::new(), &Credentials::default()), []);
    let own_key = BTreeMap::from([("key".to_owned(), schemes()["key"].clone())]);
    assert_eq!(silent(&own_key, &plain), [key(Place::Header, "X-Key", "token")]);
    let bearer = other(Credential::Bearer(secret("token")));
    assert_eq!(silent(&own_key, &bearer), [Grant::Bearer(secret("token"))]);
}

#[test]
fn an_operation_that_says_that_anybody_is_let_in_gets_nothing() {
    let open = Operation { security: vec![BTreeMap::new()], ..operation("GET", "/pets") };
    let description = Description { operations: vec![open.clone()], ..Description::default() };
    assert!(is_silent(&description));
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
        let grants = chosen(&[&["oauth"]], &other(client)).unwrap();
        let [Grant::Token(wanted)] = grants.as_slice() else { panic!("{grants:?}") };
        assert_eq!(
            (wanted.scopes.as_slice(), wanted.token_url.as_str()),
            (&[expected.to_owned()][..], "/token")
        );
    }
}

#[test]
fn what_is_needed_is_named_where_nothing_fits() {
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
fn credentials_print_as_nothing() {
    let credentials = other(Credential::Basic { user: "u".to_owned(), password: secret("hunter2!") });
    assert!(!format!("{credentials:?}").contains("hunter2"));
    let grants = chosen(&[&["basic"]], &credentials).unwrap();
    assert!(!format!("{grants:?}").contains("hunter2"));
}
