//! SSRF: an address named by a remote party must not lie in a nearer network than that party.

use super::*;
use url::Url;

/// The loopback host as a literal address and as a name.
const LOOPBACK_HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

fn pets() -> Description {
    Description { operations: vec![operation("GET", "/pets")], ..Description::default() }
}

/// An API whose description was fetched from `spec`, from a peer of this network scope.
fn from_web(mut description: Description, spec: &str, scope: NetworkScope, base: Option<&str>) -> LoadedApi {
    let url = Url::parse(spec).unwrap();
    let mut settings = ApiSettings::new(Identifier::sanitize("pets"), Spec::Web(url.clone()));
    settings.base_url = base.map(str::to_owned);
    settings.credentials.other = Some(Credential::ClientCredentials {
        id: "me".to_owned(),
        secret: Secret::new("hunter2!"),
        scopes: Vec::new(),
        token_url: None,
    });
    let client = ApiClient::new(&settings).unwrap();
    description.operations.iter_mut().for_each(|operation| operation.name = "operation".to_owned());
    let address = Some(WebAddress { url, scope });
    LoadedApi::new(description, address, None, Arc::new(settings), Arc::new(client))
}

#[tokio::test]
async fn a_public_api_cannot_redirect_to_this_machine() {
    for host in LOOPBACK_HOSTS {
        let inner = MockWebServer::serve(|_| json_reply("1"));
        let to = inner.url("/").replace("127.0.0.1", host);
        let outer = MockWebServer::serve(move |_| redirect(302, &to));
        let settings = ApiSettings {
            base_url: Some(outer.url("")),
            ..ApiSettings::new(Identifier::sanitize("pets"), Spec::File("pets.yaml".into()))
        };
        let public = ApiClient::new(&settings).unwrap().with_public_peers();
        let api = LoadedApi::new(pets(), None, None, Arc::new(settings.clone()), Arc::new(public));
        let error = call(api, json!({})).await.unwrap_err();
        assert_eq!((error.kind(), inner.requests().len()), (ErrorKind::Forbidden, 0), "{error}");
        assert!(error.message().contains("a loopback address"), "{error}");
        // A loopback API may redirect to loopback.
        assert_eq!(
            call(api_with_settings(pets(), settings), json!({})).await.unwrap().value,
            json!(1),
            "{host}"
        );
    }
}

#[tokio::test]
async fn an_api_behind_a_proxy_cannot_redirect_to_this_machine() {
    for host in LOOPBACK_HOSTS {
        let inner = MockWebServer::serve(|_| json_reply("1"));
        let to = inner.url("/").replace("127.0.0.1", host);
        let proxy = MockWebServer::serve(move |_| redirect(302, &to));
        let through = |settings: &mut ApiSettings| settings.proxy = Some(Secret::new(proxy.url("")));
        let error = call(api_of(pets(), "http://api.invalid/v1", through), json!({})).await.unwrap_err();
        assert_eq!((error.kind(), inner.requests().len()), (ErrorKind::Forbidden, 0), "{error}");
        assert_eq!(proxy.requests().len(), 1, "what is refused is not sent to the proxy either");
    }
}

#[tokio::test]
async fn a_public_description_cannot_place_its_api_on_this_machine() {
    let spec = "https://docs.example/api.json";
    for host in LOOPBACK_HOSTS {
        let web = MockWebServer::serve(|_| json_reply("1"));
        let server = web.url("/v1").replace("127.0.0.1", host);
        let mut description = pets();
        description.operations[0].servers = vec![server.clone()];
        let api = from_web(description.clone(), spec, NetworkScope::Internet, None);
        let error = call(api, json!({})).await.unwrap_err();
        assert_eq!((error.kind(), web.requests().len()), (ErrorKind::Forbidden, 0), "{error}");
        assert!(error.message().ends_with("set `base_url` to allow it"), "{error}");
        // An explicit `base_url` is trusted.
        let api = from_web(description.clone(), spec, NetworkScope::Internet, Some(&server));
        assert_eq!(call(api, json!({})).await.unwrap().value, json!(1));
        // The configured host of `spec` is trusted, even if it is a loopback host.
        let own = server.replace("/v1", "/api.json");
        let api = from_web(description.clone(), &own, NetworkScope::Internet, None);
        assert_eq!(call(api, json!({})).await.unwrap().value, json!(1));
        // A description from loopback may name loopback.
        let api = from_web(description, spec, NetworkScope::Loopback, None);
        assert_eq!(call(api, json!({})).await.unwrap().value, json!(1));
    }
    for server in
        ["http://10.0.0.1/", "http://[fd12::1]/", "http://169.254.169.254/", "http://[2002:7f00:1::]/"]
    {
        let mut description = pets();
        description.operations[0].servers = vec![server.to_owned()];
        let error = call(from_web(description, spec, NetworkScope::Internet, None), json!({})).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Forbidden, "{server}");
    }
}

#[test]
fn the_host_of_a_description_never_resolves_to_a_nearer_network() {
    let reach = |host: &str, scope, base| {
        let mut description = pets();
        description.operations[0].servers = vec![format!("http://{host}/v1")];
        let api = from_web(description, &format!("http://{host}/api.json"), scope, base);
        api.inner.base(&api.inner.description.operations[0]).unwrap().reach
    };
    // A name may be resolved to any address the next time.
    assert_eq!(reach("docs.example", NetworkScope::Internet, None), AddressPolicy::INTERNET);
    assert_eq!(reach("docs.example", NetworkScope::Loopback, None), AddressPolicy::TRUSTED);
    assert_eq!(reach("127.0.0.1", NetworkScope::Internet, None).nearest(), NetworkScope::Loopback);
    // A literal address in `base_url` or `spec` is allowed by naming it.
    let base = Some("http://169.254.7.7/v1");
    let named = reach("docs.example", NetworkScope::Internet, base);
    assert_eq!(named.check_host("169.254.7.7"), Ok(()));
    assert!(named.check_host("169.254.169.254").is_err());
    let named = reach("169.254.7.7", NetworkScope::Private, None);
    assert_eq!(named.check_host("169.254.7.7"), Ok(()));
}

#[tokio::test]
async fn a_public_description_cannot_have_a_secret_sent_to_this_machine() {
    for host in LOOPBACK_HOSTS {
        let web = MockWebServer::serve(|_| json_reply(r#"{"access_token": "t0ken!"}"#));
        let token_url = web.url("/token").replace("127.0.0.1", host);
        let description = |token_url: &str| {
            let mut description = pets();
            let security = vec![BTreeMap::from([("it".to_owned(), Vec::new())])];
            description.operations[0].security = security;
            let scheme =
                SecurityScheme::ClientCredentials { token_url: token_url.to_owned(), scopes: Vec::new() };
            description.schemes = BTreeMap::from([("it".to_owned(), scheme)]);
            description
        };
        // The token request is refused before the API host, which does not exist, is contacted.
        let (spec, base) = ("https://docs.example/api.json", Some("http://api.invalid/v1"));
        let api = from_web(description(&token_url), spec, NetworkScope::Internet, base);
        let error = call(api, json!({})).await.unwrap_err();
        assert_eq!((error.kind(), web.requests().len()), (ErrorKind::Forbidden, 0), "{error}");
        let base = web.url("/v1");
        let api = from_web(description("/token"), spec, NetworkScope::Internet, Some(&base));
        call(api, json!({})).await.unwrap();
        assert_eq!(web.requests()[0].target(), "POST /token");
    }
}
