//! Every style, in every location, with every type of value.

use super::*;

/// The argument values.
fn value(name: &str) -> Value {
    match name {
        "text" => json!("blue"),
        "number" => json!(2.0),
        "list" => json!(["blue", "black"]),
        "object" => json!({ "R": 100, "G": true }),
        "empty" => json!(""),
        "unicode" => json!("grün ☂"),
        "reserved" => json!(":/?#[]@!$&'()*+,;=%|\""),
        "delimiters" => json!(["a,b", "c|d e"]),
        "no items" => json!([]),
        "no fields" => json!({}),
        other => panic!("{other}"),
    }
}

/// Expected if nothing is sent for a value.
const NOTHING: &str = "(nothing)";
/// Expected if a value cannot be sent.
const REFUSED: &str = "(refused)";

/// The table of expectations.
const TABLE: &str = include_str!("parameters.txt");

/// The part of a request that an operation tests, by the first word of its name: a path segment, the query,
/// the header or the cookies.
fn part(operation: &str, request: &RecordedRequest) -> String {
    let (location, style) = operation.split_once('_').unwrap();
    let target = request.target().strip_prefix("GET /v1/").unwrap();
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let here = format!("{location}/{style}");
    let rest = path.strip_prefix(&here).unwrap_or_else(|| panic!("{path}"));
    let (header, cookies) = (request.header("x-color"), request.header("cookie"));
    let segment = rest.strip_prefix('/').and_then(|rest| rest.strip_suffix("/end"));
    let locations = [
        ("path", segment.filter(|_| location == "path")),
        ("query", query),
        ("header", header),
        ("cookie", cookies),
    ];
    for (other, value) in locations.iter().filter(|(other, _)| *other != location) {
        assert_eq!(*value, None, "{operation}: {other}");
    }
    assert!(request.body.is_empty());
    let found = locations.iter().find_map(|(other, value)| (*other == location).then_some(*value)).unwrap();
    found.unwrap_or(NOTHING).to_owned()
}

/// The cases of a version whose operations have this first word: operation, value and expectation.
fn cases(version: Version, location: &str) -> Vec<(&'static str, &'static str, String)> {
    let mut cases = Vec::new();
    let mut operation = None;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(case) = line.strip_prefix("    ") {
            let (value, expected) = case.split_once(" =").unwrap();
            let expected = expected.strip_prefix(' ').unwrap_or(expected).replace("\\t", "\t");
            cases.extend(operation.map(|operation| (operation, value, expected)));
        } else {
            let (versions, name) = line.rsplit_once(' ').unwrap();
            let is_there = versions.split(' ').any(|own| own == version.name());
            operation = Some(name).filter(|name| is_there && name.starts_with(location));
        }
    }
    cases
}

/// Calls all operations of a location with all values. `counts` makes sure that no case is skipped.
async fn check(location: &str, counts: [usize; 3]) {
    let web = recording_service();
    let mut wrong = Vec::new();
    for (version, count) in ALL.into_iter().zip(counts) {
        let catalog = catalog_for(version, &web, |_| ());
        let cases = cases(version, location);
        let named = catalog.entries().filter(|entry| entry.spec.name.starts_with(location));
        let missing_rows = named.filter(|entry| cases.iter().all(|(name, ..)| *name != entry.spec.name));
        wrong
            .extend(missing_rows.map(|entry| format!("{version:?} {} is not in the table", entry.spec.name)));
        assert_eq!(cases.len(), count, "{version:?} {location}");
        for (operation, name, expected) in cases {
            let argument = if location == "header" { "X-Color" } else { "color" };
            let found = match sent_request(&catalog, &web, operation, json!({ argument: value(name) })).await
            {
                Ok(request) => part(operation, &request),
                Err(error) if error.kind() == ErrorKind::BadRequest => REFUSED.to_owned(),
                Err(error) => panic!("{version:?} {operation} {name}: {error}"),
            };
            if found != expected {
                wrong.push(format!("{version:?} {operation} {name}: {found} and not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn values_in_paths_arrive_in_their_style() {
    check("path", [16, 75, 75]).await;
}

#[tokio::test]
async fn values_in_queries_arrive_in_their_style() {
    check("query", [19, 114, 114]).await;
}

#[tokio::test]
async fn values_in_headers_arrive_in_their_style() {
    check("header", [16, 35, 35]).await;
}

#[tokio::test]
async fn values_in_cookies_arrive_in_their_style() {
    check("cookie", [0, 28, 28]).await;
}
