//! Base URLs, frozen parameters and `Accept`.

use super::*;

fn frozen(version: Version, web: &MockWebServer, change: impl FnOnce(&mut ApiSettings)) -> Arc<Catalog> {
    let mut description = read(&text(version, web));
    let fixed = [("fixed", json!("al&ways")), ("X-Fixed", json!(["a", 1]))];
    description.freeze(&fixed.map(|(name, value)| (name.to_owned(), value)).into());
    catalog_of(description, change)
}

#[tokio::test]
async fn fixed_values_and_defaults_are_sent_and_others_are_not() {
    let web = recording_service();
    for version in ALL {
        let catalog = frozen(version, &web, |_| ());
        for (arguments, expected) in [
            (json!({ "kind": "cat" }), "GET /v1/values/cat?size=30&fixed=al%26ways"),
            (
                json!({ "kind": "dog", "size": 5, "page": 2, "shared": "s" }),
                "GET /v1/values/dog?shared=s&size=5&page=2&fixed=al%26ways",
            ),
        ] {
            let request = sent_request(&catalog, &web, "values", arguments).await.unwrap();
            assert_eq!(request.target(), expected, "{version:?}");
            assert_eq!(request.header("x-fixed"), Some("a,1"));
        }
        for refused in [
            json!({ "kind": "cat", "fixed": "mine" }),
            json!({ "kind": "cow" }),
            json!({}),
            json!({ "kind": "cat", "size": "x" }),
        ] {
            let error = sent_request(&catalog, &web, "values", refused.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadRequest, "{version:?} {refused}");
        }
    }
}

#[tokio::test]
async fn accept_lists_the_declared_media_types() {
    let web = recording_service();
    for version in ALL {
        let catalog = frozen(version, &web, |_| ());
        for (operation, arguments, expected) in [
            ("values", json!({ "kind": "cat" }), "application/json, text/csv;q=0.8"),
            ("json_body", json!({ "name": "Rex" }), "application/problem+json"),
            ("query_text", json!({}), "application/json, */*;q=0.5"),
        ] {
            let request = sent_request(&catalog, &web, operation, arguments).await.unwrap();
            assert_eq!(request.header("accept"), Some(expected), "{version:?} {operation}");
        }
    }
}

#[tokio::test]
async fn added_headers_are_sent_with_every_request() {
    let web = recording_service();
    for version in ALL {
        let catalog = catalog_for(version, &web, |settings| {
            settings.headers = [("X-Color", "ours"), ("Accept", "text/html"), ("X-Team", "é")]
                .map(|(name, value)| (name.to_owned(), Secret::new(value)))
                .into();
        });
        let request =
            sent_request(&catalog, &web, "header_text", json!({ "X-Color": "theirs" })).await.unwrap();
        assert_eq!(request.header("x-color"), Some("ours"), "{version:?}");
        assert_eq!((request.header("accept"), request.header("x-team")), (Some("text/html"), Some("é")));
        assert_eq!(request.head.to_ascii_lowercase().matches("x-color:").count(), 1);
    }
}

#[tokio::test]
async fn the_configured_base_url_overrides_the_description() {
    let (web, other) = (recording_service(), recording_service());
    for version in ALL {
        let base = other.url("/base/?team=1");
        let catalog = catalog_for(version, &web, |settings| settings.base_url = Some(base));
        call_named(&catalog, "query_text", json!({ "color": "blue" })).await.unwrap();
        let request = other.requests().pop().unwrap();
        assert_eq!(request.target(), "GET /base/query/text?team=1&color=blue", "{version:?}");
    }
    assert!(web.requests().is_empty());
}

#[tokio::test]
async fn a_server_url_may_be_relative_to_the_description() {
    let web = recording_service();
    for version in ALL {
        // A server URL relative to the description's own.
        let here = text(version, &web)
            .replace("http://127.0.0.1:{port}/{version}", "../{version}")
            .replace(&format!("\"host\": \"{}\",", web.url("").trim_start_matches("http://")), "");
        let catalog = catalog_of(read(&here), |settings| {
            settings.spec = Spec::Web(web.url("/specs/wire.yaml?download=1#top").parse().unwrap());
        });
        let request = sent_request(&catalog, &web, "query_text", json!({})).await.unwrap();
        assert_eq!(request.target(), "GET /v1/query/text", "{version:?}");
        if version != Swagger2 {
            let request = sent_request(&catalog, &web, "elsewhere", json!({})).await.unwrap();
            assert_eq!(request.target(), "GET /other/v3/elsewhere", "{version:?}");
        }
    }
}

#[tokio::test]
async fn without_a_base_url_nothing_is_sent() {
    let web = recording_service();
    let catalog = catalog_for(OpenApi30, &web, |_| ());
    let error = sent_request(&catalog, &web, "elsewhere", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConfigured);
    assert!(error.message().contains("base_url"), "{error}");
}
