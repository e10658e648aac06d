//! `[apis.<name>]`, `[frozen_params]`, and APIs from the command line.

use super::super::{AuthArgument, Config};
use super::{CliOverrides, load, load_with_overrides, problems, requests};
use ctx_core::Secret;
use ctx_openapi::{ApiLimits, ApiSettings, Credential, Credentials, Spec};
use serde_json::{Value, json};
use std::time::Duration;

fn apis(config: &Config) -> Vec<ApiSettings> {
    config.apis(&|_| true).0
}

/// The only API of a section with these keys.
fn api(keys: &str) -> ApiSettings {
    apis(&load(&format!("[apis.a]\nspec = \"a.yaml\"\n{keys}\n")).unwrap()).remove(0)
}

fn plain(text: &str) -> Credential {
    Credential::Plain(Secret::new(text))
}

fn other(credential: Credential) -> Credentials {
    Credentials { other: Some(credential), ..Credentials::default() }
}

fn settings_json(config: &Config) -> String {
    serde_json::to_string(&config.shown_settings()).unwrap()
}

#[test]
fn an_api_needs_no_more_than_its_description() {
    let config =
        load("[apis.a-b]\nspec = \"specs/a.yaml\"\n[apis.web]\nspec = \"https://a/b.json\"\n").unwrap();
    let apis = apis(&config);
    assert_eq!(apis[0].name.as_str(), "a_b");
    assert_eq!(apis[0].spec, Spec::File(config.root.join("specs/a.yaml")));
    assert!(matches!(&apis[1].spec, Spec::Web(url) if url.as_str() == "https://a/b.json"));
    let one = &apis[0];
    assert_eq!((one.base_url.as_ref(), one.exposed, one.accepts_caller_credentials), (None, false, false));
    assert!(one.credentials.is_empty() && one.frozen.is_empty() && one.headers.is_empty());
    assert!(one.proxy.is_none() && one.rate_limit.is_none());
    assert_eq!(one.limits, ApiLimits::default());
}

#[test]
fn every_key_has_an_effect() {
    let api = api(
        "base_url = \"https://a/v1\"\nrequest_auth = true\nexpose = true\nproxy = \"http://proxy:3128\"\n\
         headers = { X-Tenant = \"ours\" }\nrate_limit = \"10/s\"\nconcurrency = 3\ntimeout = 7\n",
    );
    assert_eq!(api.base_url.as_deref(), Some("https://a/v1"));
    assert!(api.accepts_caller_credentials && api.exposed);
    assert_eq!(api.proxy.unwrap().expose(), "http://proxy:3128");
    assert_eq!(api.headers, [("X-Tenant".to_owned(), Secret::new("ours"))]);
    assert_eq!(api.rate_limit.unwrap(), "10/s".parse().unwrap());
    assert_eq!((api.limits.in_flight, api.limits.call), (3, Duration::from_secs(7)));
}

#[test]
fn limits_apply_where_an_api_sets_none() {
    let limits = "[limits]\napi_timeout = 5\napi_calls = 6\napi_response_bytes = 7\n";
    let config = load(&format!("{limits}[apis.a]\nspec = \"a\"\n")).unwrap();
    let expected = ApiLimits { call: Duration::from_secs(5), response_bytes: 7, in_flight: 6 };
    assert_eq!(apis(&config)[0].limits, expected);
}

#[test]
fn credentials_are_a_text_a_table_or_by_scheme() {
    assert_eq!(api("auth = \"${KEY}\"").credentials, other(plain("hunter2hunter2")));
    let bearer = other(Credential::Bearer(Secret::new("t")));
    assert_eq!(api("auth = { type = \"bearer\", token = \"t\" }").credentials, bearer);
    assert_eq!(api("[apis.a.auth]\ntype = \"bearer\"\ntoken = \"t\"").credentials, bearer);
    let by_scheme = api("[apis.a.auth]\none = \"1\"\ntwo = { type = \"api_key\", key = \"2\" }").credentials;
    assert_eq!(by_scheme.by_scheme["one"], plain("1"));
    assert_eq!(by_scheme.by_scheme["two"], Credential::Key(Secret::new("2")));
}

#[test]
fn variables_are_named_for_the_api_or_for_each_scheme() {
    assert_eq!(api("auth_env = \"KEY\"").credentials, other(plain("hunter2hunter2")));
    let credentials = api("auth_env = { one = \"KEY\", two = \"SET\" }").credentials;
    assert_eq!(credentials.by_scheme["one"], plain("hunter2hunter2"));
    assert_eq!(credentials.by_scheme["two"], plain("value"));
}

#[test]
fn an_api_is_there_without_a_variable_that_is_not_set() {
    for (keys, warned) in [
        ("auth_env = \"UNSET\"", vec![("auth_env", "UNSET")]),
        ("auth_env = \"EMPTY\"", vec![("auth_env", "EMPTY")]),
        ("auth_env = { one = \"UNSET\", two = \"SET\" }", vec![("auth_env.one", "UNSET")]),
    ] {
        let config = load(&format!("[apis.a]\nspec = \"a.yaml\"\n{keys}\n")).unwrap();
        let (apis, warnings) = config.apis(&|_| true);
        assert_eq!(apis.len(), 1);
        let warning = |(key, variable): (&str, &str)| {
            format!(
                "ctx.toml:3: `apis.a.{key}` names the variable {variable}, which is not set: `a` is \
                 called without these credentials"
            )
        };
        assert_eq!(warnings, warned.into_iter().map(warning).collect::<Vec<_>>());
        // Warnings cover unselected APIs, too.
        assert_eq!(config.apis(&|_| false).1, warnings);
    }
    let config = load("[apis.a]\nspec = \"a.yaml\"\nauth = \"${UNSET}\"\n").unwrap();
    assert!(apis(&config).is_empty());
    assert_eq!(
        config.warnings,
        ["ctx.toml:3: [apis.a] is left out: `apis.a.auth` needs the variable UNSET, which is not set"]
    );
}

#[test]
fn values_are_frozen_for_one_api_over_those_for_all() {
    let config = load(
        "[frozen_params]\nversion = \"v1\"\ntenant = 7\n[apis.a]\nspec = \"a\"\n\
         frozen_params = { version = \"v2\", deep = [1, { x = \"${SET}\" }] }\n[apis.b]\nspec = \"b\"\n",
    )
    .unwrap();
    let frozen: Vec<Value> = apis(&config).iter().map(|api| json!(api.frozen)).collect();
    assert_eq!(frozen[0], json!({"version": "v2", "tenant": 7, "deep": [1, {"x": "value"}]}));
    assert_eq!(frozen[1], json!({"version": "v1", "tenant": 7}));
}

#[test]
fn what_is_to_be_frozen_and_is_not_there_is_an_error() {
    assert_eq!(
        problems("[frozen_params]\ntenant = \"${UNSET}\"\n[apis.a]\nspec = \"a\"\n"),
        ["ctx.toml:2: `frozen_params.tenant` needs the variable UNSET, which is not set"]
    );
}

#[test]
fn every_invalid_key_is_named() {
    let names = "must be the name of a variable like `API_TOKEN`, or a table of such names by scheme";
    for (keys, problem) in [
        ("spc = 1", "3: unknown key `apis.a.spc`; did you mean `spec`?".to_owned()),
        ("base_url = \"/v1\"", "3: `apis.a.base_url`: must begin with https:// or http://".to_owned()),
        ("base_url = \"https://\"", "3: `apis.a.base_url`: `base_url` is not a valid URL: empty host".to_owned()),
        ("auth = 5", "3: `apis.a.auth`: must be a string, or a table with a `type`".to_owned()),
        ("auth = { type = \"bearer\" }", "3: `apis.a.auth`: `token` is missing".to_owned()),
        ("auth = { key = 5 }", "3: `apis.a.auth`: `key`: must be a string, or a table with a `type`".to_owned()),
        ("auth = \"a\"\nauth_env = \"SET\"", "4: `apis.a.auth_env`: cannot be combined with `auth`".to_owned()),
        ("auth_env = \"sk-5/not a name\"", format!("3: `apis.a.auth_env`: {names}")),
        ("auth_env = 5", format!("3: `apis.a.auth_env`: {names}")),
        ("auth_env = { a = { b = \"SET\" } }", format!("3: `apis.a.auth_env`: {names}")),
        (
            "include = [\"a[\"]",
            "3: `apis.a.include`: `a[` is not a valid pattern: unclosed character class; missing ']'".to_owned(),
        ),
        (
            "exclude = [\"tag:[\"]",
            "3: `apis.a.exclude`: `tag:[` is not a valid pattern: unclosed character class; missing ']'".to_owned(),
        ),
        (
            "headers = { \"a b\" = \"c\" }",
            "3: `apis.a.headers`: the header `a b` is invalid".to_owned(),
        ),
        ("headers = { a = 77777777 }", "3: `apis.a.headers.a`: has the wrong type".to_owned()),
        ("proxy = \"::\"", "3: `apis.a.proxy`: the proxy URL is invalid".to_owned()),
        (
            "rate_limit = \"often\"",
            "3: `apis.a.rate_limit`: `often` is not a rate limit; write calls per second, minute, hour or day, like \
             `10/m`"
                .to_owned(),
        ),
        (
            "concurrency = 0",
            "3: `apis.a.concurrency`: invalid value: integer `0`, expected a nonzero u32".to_owned(),
        ),
        (
            "timeout = 0",
            "3: `apis.a.timeout`: invalid value: integer `0`, expected a nonzero u32".to_owned(),
        ),
        (
            "expose = \"no\"",
            "3: `apis.a.expose`: invalid type: string \"no\", expected a boolean".to_owned(),
        ),
    ] {
        let text = format!("[apis.a]\nspec = \"a.yaml\"\n{keys}\n");
        assert_eq!(problems(&text), [format!("ctx.toml:{problem}")], "{keys}");
    }
    assert_eq!(
        problems("[apis.a]\nbase_url = \"https://a\"\n"),
        ["ctx.toml:1: `apis.a`: missing field `spec`"]
    );
    assert_eq!(problems("[apis.a]\nspec = \" \"\n"), ["ctx.toml:2: `apis.a.spec`: must not be empty"]);
    let unreadable = &problems("[apis.a]\nspec = \"https://\"\n")[0];
    assert!(unreadable.starts_with("ctx.toml:2: `apis.a.spec`: the URL of the description"), "{unreadable}");
}

#[test]
fn names_are_shared_with_servers_and_with_what_is_built_in() {
    assert_eq!(
        problems("[apis.context]\nspec = \"a\"\n"),
        ["ctx.toml:1: `apis.context`: the name `context` is reserved for a built-in; choose another name"]
    );
    let goes = |line: u8, name: &str, identifier: &str, other: &str| {
        format!(
            "ctx.toml:{line}: `apis.{name}`: has the same name in scripts as [{other}], `{identifier}`; rename one \
             of them"
        )
    };
    assert_eq!(
        problems("[mcp_servers.my_api]\ncommand = \"a\"\n[apis.my-api]\nspec = \"a\"\n"),
        [goes(3, "my-api", "my_api", "mcp_servers.my_api")]
    );
    assert_eq!(
        problems("[apis.my-api]\nspec = \"a\"\n[apis.my_api]\nspec = \"a\"\n"),
        [goes(3, "my_api", "my_api", "apis.my-api")]
    );
}

#[test]
fn secrets_of_an_api_are_masked_wherever_they_are_written() {
    for keys in [
        "auth = \"hunter2hunter2\"",
        "auth_env = \"KEY\"",
        "auth_env = { one = \"KEY\" }",
        "auth = { type = \"bearer\", token = \"hunter2hunter2\" }",
        "auth = { type = \"basic\", username = \"me\", password = \"hunter2hunter2\" }",
        "auth = { type = \"basic\", username = \"hunter2hunter2\", password = \"\" }",
        "auth = { type = \"api_key\", key = \"hunter2hunter2\" }",
        "auth = { username = \"hunter2hunter2\" }",
        "auth = { one = { type = \"oauth2\", client_id = \"i\", client_secret = \"hunter2hunter2\" } }",
        "headers = { X-Any = \"Bearer ${KEY}\" }",
        "headers = { Authorization = \"Bearer hunter2hunter2\" }",
        "proxy = \"http://me:hunter2hunter2@proxy\"",
        "frozen_params = { key = \"${KEY}\", more = [\"${KEY}\"] }",
    ] {
        let config = load(&format!("[apis.a]\nspec = \"a.yaml\"\n{keys}\n")).unwrap();
        let shown = settings_json(&config);
        assert!(!shown.contains("hunter2") && shown.contains("***"), "{keys}: {shown}");
        assert!(!format!("{:?}", config.settings).contains("hunter2"), "{keys}");
        // A service's response would contain the token without its scheme.
        let redactor = &config.redactor;
        assert!(!redactor.text("got hunter2hunter2".to_owned()).contains("hunter2"), "{keys}");
    }
    let config = load("[frozen_params]\nkey = \"${KEY}\"\nversion = \"2026-01-01\"\n").unwrap();
    let shown = settings_json(&config);
    assert!(!shown.contains("hunter2") && shown.contains("2026-01-01"), "{shown}");
}

#[test]
fn what_is_no_secret_of_an_api_is_shown() {
    let config = load(
        "[apis.a]\nspec = \"a.yaml\"\nauth = { type = \"basic\", username = \"jane.doe\", password = \"\
         hunter2hunter2\" }\nheaders = { Accept = \"application/vnd.x\" }\nfrozen_params = { version = \"v2-beta\" }\n",
    )
    .unwrap();
    let shown = settings_json(&config);
    for plain in ["jane.doe", "\"basic\"", "application/vnd.x", "v2-beta"] {
        assert!(shown.contains(plain), "{plain}: {shown}");
    }
    // Short secrets are masked, too.
    let config = load("[apis.a]\nspec = \"a.yaml\"\nauth = \"qwx\"\n").unwrap();
    assert!(!self::settings_json(&config).contains("qwx"));
}

#[test]
fn what_an_api_would_be_sent_is_told_as_it_is_written_but_for_secrets() {
    let config = load(
        "[apis.a]\nspec = \"a.yaml\"\nbase_url = \"https://${SET}\"\nauth = \"${KEY}\"\n\
         [apis.b]\nspec = \"https://b/openapi.json\"\nauth = { one = \"hunter2hunter2\", two = { type = \"bearer\", \
         token = \"${KEY}\" } }\nheaders = { X-Api-Key = \"hunter2hunter2\" }\n[apis.c]\nspec = \"${UNSET}\"\n\
         [frozen_params]\ntenant = \"${SET}\"\n",
    )
    .unwrap();
    assert_eq!(
        requests(&config),
        [
            ("apis.a", "a.yaml https://${SET} {\"auth\":\"${KEY}\"}"),
            (
                "apis.b",
                "https://b/openapi.json {\"auth\":{\"one\":\"***\",\"two\":{\"token\":\"${KEY}\",\"type\":\"bearer\"}},\
                 \"headers\":{\"X-Api-Key\":\"***\"}}"
            ),
            ("apis.c", "${UNSET}"),
            ("frozen_params", "{\"tenant\":\"${SET}\"}"),
        ]
    );
}

#[test]
fn unselected_apis_are_left_out() {
    let config = load("[apis.a]\nspec = \"a\"\n[apis.b]\nspec = \"b\"\n[frozen_params]\nx = 1\n").unwrap();
    let left = |may_run: &dyn Fn(&str) -> bool| {
        config.apis(may_run).0.iter().map(|api| api.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(left(&|section| section != "apis.a"), ["b"]);
}

fn cli_overrides(apis: &[&str], auth: &[&str]) -> CliOverrides {
    let auth = auth.iter().map(|argument| argument.parse::<AuthArgument>().unwrap()).collect();
    CliOverrides {
        apis: apis.iter().map(|argument| argument.parse().unwrap()).collect(),
        auth,
        ..CliOverrides::default()
    }
}

#[test]
fn an_api_argument_replaces_the_section_and_needs_no_trust() {
    let text = "[apis.a]\nspec = \"a.yaml\"\nauth = \"x\"\nexpose = true\n[apis.b]\nspec = \"b.yaml\"\n";
    let config = load_with_overrides(text, &cli_overrides(&["a=https://typed/x.json"], &[])).unwrap();
    let apis = apis(&config);
    assert_eq!(apis[0].spec.to_string(), "https://typed/x.json");
    assert!(apis[0].credentials.is_empty() && !apis[0].exposed && apis[0].accepts_caller_credentials);
    assert_eq!(requests(&config), [("apis.b", "b.yaml")]);
}

#[test]
fn auth_arguments_override_configured_credentials() {
    let text = "[apis.a]\nspec = \"a.yaml\"\nauth = \"x\"\n[apis.b]\nspec = \"b.yaml\"\nauth_env = \"UNSET\"\n\
                [apis.\"c.d\"]\nspec = \"c.yaml\"\nauth = { old = \"x\" }\n";
    let config =
        load_with_overrides(text, &cli_overrides(&[], &["a:KEY", "b:SET", "c.d.one:KEY", "c.d.two:SET"]))
            .unwrap();
    let apis = apis(&config);
    assert_eq!(apis[0].credentials, other(plain("hunter2hunter2")));
    assert_eq!(apis[1].credentials, other(plain("value")));
    let schemes: Vec<&String> = apis[2].credentials.by_scheme.keys().collect();
    assert_eq!(schemes, ["one", "two"]);
    assert!(config.apis(&|_| true).1.is_empty());
    assert!(!settings_json(&config).contains("hunter2"));
}

#[test]
fn invalid_api_and_auth_arguments_are_refused() {
    let spec = "pets=https://a/b";
    for (apis, auth, problem) in [
        (vec![], vec!["pets:KEY"], "--auth: there is no API `pets`"),
        (vec![spec], vec!["pts:KEY"], "--auth: there is no API `pts`; did you mean `pets`?"),
        (vec![spec], vec!["pets:UNSET"], "--auth: the variable UNSET is not set, which `pets` needs"),
        (vec![spec], vec!["pets:EMPTY"], "--auth: the variable EMPTY is not set, which `pets` needs"),
        (
            vec![spec],
            vec!["pets:KEY", "pets.a:SET"],
            "--auth: `pets` has credentials twice: give one, or one for each scheme",
        ),
        (vec![spec, spec], vec![], "two APIs have the name `pets`; write name=PATH or name=URL"),
        (
            vec!["tools=https://a/b"],
            vec![],
            "typed: `apis.tools`: the name `tools` is reserved for a built-in; choose another name",
        ),
    ] {
        let error = load_with_overrides("", &cli_overrides(&apis, &auth)).err().unwrap();
        assert_eq!(error.problems, [problem]);
    }
}
