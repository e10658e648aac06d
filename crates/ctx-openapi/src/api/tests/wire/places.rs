//! Base URLs, frozen parameters and `Accept`.

use super::*;

fn frozen(version: Version, web: &Web, change: impl FnOnce(&mut ApiSettings)) -> Arc<Catalog> {
    let mut description = read(&text(version, web));
    let fixed = [("fixed", json!("al&ways")), ("X-Fixed", json!(["a", 1]))];
    description.freeze(&fixed.map(|(name, value)| (name.to_owned(), value)).into());
    provided(description, change)
}

#[tokio::test]
async fn fixed_values_and_defaults_are_sent_and_others_are_not() {
    let web = silent();
    for version in ALL {
        let catalog = frozen(version, &web, |_| ());
        for (arguments, expected) in [
            (json!({ "kind": "cat" }), "GET /v1/values/cat?size=30&fixed=al%26ways"),
            (
                json!({ "kind": "dog", "size": 5, "page": 2, "shared": "s" }),
                "GET /v1/values/dog?shared=s&size=5&page=2&fixed=al%26ways",
            ),
        ] {
            let asked = arrived(&catalog, &web, "values", arguments).await.unwrap();
            assert_eq!(asked.target(), expected, "{version:?}");
            assert_eq!(asked.header("x-fixed"), Some("a,1"));
        }
        for refused in [
            json!({ "kind": "cat", "fixed": "mine" }),
            json!({ "kind": "cow" }),
            json!({}),
            json!({ "kind": "cat", "size": "x" }),
        ] {
            let error = arrived(&catalog, &web, "values", refused.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadRequest, "{version:?} {refused}");
        }
    }
}

#[tokio::test]
async fn what_can_be_read_is_asked_for() {
    let web = silent();
    for version in ALL {
        let catalog = frozen(version, &web, |_| ());
        for (operation, arguments, expected) in [
            ("values", json!({ "kind": "cat" }), "application/json, text/csv;q=0.8"),
            ("json_body", json!({ "name": "Rex" }), "application/problem+json"),
            ("query_text", json!({}), "application/json, */*;q=0.5"),
        ] {
            let asked = arrived(&catalog, &web, operation, arguments).await.unwrap();
            assert_eq!(asked.header("accept"), Some(expected), "{version:?} {operation}");
        }
    }
}

#[tokio::test]
async fn added_headers_are_sent_with_every_request() {
    let web = silent();
    for version in ALL {
        let catalog = functions(version, &web, |settings| {
            settings.headers = [("X-Color", "ours"), ("Accept", "text/html"), ("X-Team", "é")]
                .map(|(name, value)| (name.to_owned(), Secret::new(value)))
                .into();
        });
        let asked = arrived(&catalog, &web, "header_text", json!({ "X-Color": "theirs" })).await.unwrap();
        assert_eq!(asked.header("x-color"), Some("ours"), "{version:?}");
        assert_eq!((asked.header("accept"), asked.header("x-team")), (Some("text/html"), Some("é")));
        assert_eq!(asked.head.to_ascii_lowercase().matches("x-color:").count(), 1);
    }
}

#[tokio::test]
async fn the_configured_address_goes_before_the_description_s() {
    let (web, other) = (silent(), silent());
    for version in ALL {
        let base = other.url("/base/?team=1");
        let catalog = functions(version, &web, |settings| settings.base_url = Some(base));
        call_named(&catalog, "query_text", json!({ "color": "blue" })).await.unwrap();
        let asked = other.asked().pop().unwrap();
        assert_eq!(asked.target(), "GET /base/query/text?team=1&color=blue", "{version:?}");
    }
    assert!(web.asked().is_empty());
}

#[tokio::test]
async fn an_address_may_be_relative_to_the_description_s() {
    let web = silent();
    for version in ALL {
        // A server URL relative to the description's own.
        let here = text(version, &web)
            .replace("http://127.0.0.1:{port}/{version}", "../{version}")
            .replace(&format!("\"host\": \"{}\",", web.url("").trim_start_matches("http://")), "");
        let catalog = provided(read(&here), |settings| {
            settings.spec = Spec::Web(web.url("/specs/wire.yaml?download=1#top").parse().unwrap());
        });
        let asked = arrived(&catalog, &web, "query_text", json!({})).await.unwrap();
        assert_eq!(asked.target(), "GET /v1/query/text", "{version:?}");
        if version != Second {
            let asked = arrived(&catalog, &web, "elsewhere", json!({})).await.unwrap();
            assert_eq!(asked.target(), "GET /other/v3/elsewhere", "{version:?}");
        }
    }
}

#[tokio::test]
async fn without_an_address_nothing_is_sent() {
    let web = silent();
    let catalog = functions(Third, &web, |_| ());
    let error = arrived(&catalog, &web, "elsewhere", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConfigured);
    assert!(error.message().contains("base_url"), "{error}");
}
