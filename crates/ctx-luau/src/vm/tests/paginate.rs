//! `paginate`: iteration over all pages of a list.

use super::{FakeChannel, chunk_with, failed, job, message, run_in, value};
use crate::engine::protocol::{HostResponse, ScriptEntry};
use crate::vm::{LogLevel, Vm};
use serde_json::{Value, json};
use std::rc::Rc;

/// A response that is a page of a list.
fn page(answer: &Value, page: &Value) -> HostResponse {
    HostResponse::Value { json: answer.to_string().into_bytes(), bytes: page.to_string().into_bytes() }
}

/// A service with three pages of two items, counted from 1; later pages repeat.
fn service() -> Rc<FakeChannel> {
    FakeChannel::new(|method, request, _| {
        assert_eq!((method, &request["page"]), ("call", &json!(true)));
        let mut arguments = request["arguments"].clone();
        let number = arguments["page"].as_u64().unwrap_or(1);
        arguments["page"] = json!(number + 1);
        let answer = json!({ "data": { "list": [number * 10, number * 10 + 1] } });
        let mut info = json!({ "items": ["data", "list"], "mark": number.to_string() });
        if number < 3 {
            info["next"] = arguments;
        }
        page(&answer, &info)
    })
}

fn page_arguments(service: &FakeChannel) -> Vec<Value> {
    service.requests().into_iter().map(|(_, request, _)| request["arguments"].clone()).collect()
}

#[test]
fn items_come_one_by_one_over_all_pages() {
    let service = service();
    let source = "local all = {}
        for item in paginate(sdk.x.list, { owner = 'a' }) do table.insert(all, item) end
        return all";
    assert_eq!(chunk_with(source, service.clone()).unwrap(), json!([10, 11, 20, 21, 30, 31]));
    let first = json!({ "owner": "a" });
    let later = |page: u64| json!({ "owner": "a", "page": page });
    assert_eq!(page_arguments(&service), [first, later(2), later(3)]);
    assert_eq!(service.requests()[2].1["name"], "x.list");
}

#[test]
fn a_page_is_called_only_when_it_is_needed() {
    let service = service();
    let source = "local list = paginate(sdk.x.list)
        for item in list do if item == 11 then break end end
        return list:all(2)";
    assert_eq!(chunk_with(source, service.clone()).unwrap(), json!([10, 11]));
    assert_eq!(page_arguments(&service).len(), 2);
    assert_eq!(chunk_with("paginate(sdk.x.list) return 1", service.clone()).unwrap(), json!(1));
    assert_eq!(page_arguments(&service).len(), 2);
}

#[test]
fn all_is_a_list_and_pages_are_whole_answers() {
    let source = "local list, numbers = paginate(sdk.x.list), {}
        for answer in list:pages() do table.insert(numbers, answer.data.list[1]) end
        return { list:all(), list:all(3), numbers }";
    let all = json!([10, 11, 20, 21, 30, 31]);
    assert_eq!(chunk_with(source, service()).unwrap(), json!([all, [10, 11, 20], [10, 20, 30]]));
    let empty = FakeChannel::new(|_, _, _| page(&json!({}), &json!({ "mark": "a" })));
    assert_eq!(chunk_with("return paginate(sdk.x.list):all()", empty).unwrap(), json!([]));
}

#[test]
fn functions_of_provider_globals_are_paginated_as_well() {
    let mut job = job(ScriptEntry::Chunk, &[]);
    job.apis.push("sdk.files".to_owned());
    let source = "return paginate(files.list):all(3)";
    let items = run_in(&mut Vm::new().unwrap(), &job, source, service());
    assert_eq!(items.unwrap(), json!([10, 11, 20]));
}

#[test]
fn parallel_lists_are_fetched_concurrently() {
    let service = service();
    let source = "local function walk() return paginate(sdk.x.list):all() end
        local lists = parallel({ walk, walk, walk }) return #lists[1] + #lists[2] + #lists[3]";
    assert_eq!(chunk_with(source, service.clone()).unwrap(), json!(18));
    assert_eq!(service.open_max(), 3);
    let source = "local function walk() local n = 0 for _ in paginate(sdk.x.list) do n += 1 end return n end
        local counts = parallel({ walk, walk }) return counts[1] + counts[2]";
    assert_eq!(chunk_with(source, service).unwrap(), json!(12));
}

#[test]
fn a_repeated_page_ends_the_list() {
    for (circle, expected) in [(1, json!([1])), (3, json!([1, 2, 3]))] {
        let service = FakeChannel::new(move |_, request, _| {
            let number = request["arguments"]["page"].as_u64().unwrap_or(1);
            let shown = (number - 1) % circle + 1;
            let info = json!({ "items": [], "next": { "page": number + 1 }, "mark": shown.to_string() });
            page(&json!([shown]), &info)
        });
        let source = "return paginate(sdk.x.list):all()";
        assert_eq!(chunk_with(source, service.clone()).unwrap(), expected);
        assert_eq!(page_arguments(&service).len() as u64, circle + 1);
    }
}

#[test]
fn pages_without_items_are_skipped_and_nulls_are_items() {
    let service = FakeChannel::new(|_, request, _| match request["arguments"]["page"].as_u64() {
        None => page(&json!({}), &json!({ "next": { "page": 2 }, "mark": "1" })),
        Some(2) => page(&json!([]), &json!({ "items": [], "next": { "page": 3 }, "mark": "2" })),
        _ => page(&json!([null, 1]), &json!({ "items": [], "mark": "3" })),
    });
    let all = chunk_with("return paginate(sdk.x.list):all()", service).unwrap();
    assert_eq!(all, json!([null, 1]));
}

#[test]
fn arguments_come_back_as_they_were_sent() {
    let next =
        json!({ "ids": [], "map": {}, "none": null, "large": 9_007_199_254_740_993_u64, "cursor": "a" });
    let sent = next.clone();
    let service = FakeChannel::new(move |_, request, _| match request["arguments"].get("cursor") {
        None => page(&json!([1]), &json!({ "items": [], "next": sent, "mark": "1" })),
        Some(_) => page(&json!([2]), &json!({ "items": [], "mark": "2" })),
    });
    let source = "return paginate(sdk.x.list):all()";
    assert_eq!(chunk_with(source, service.clone()).unwrap(), json!([1, 2]));
    assert_eq!(page_arguments(&service)[1], next);
}

#[test]
fn a_value_that_is_not_a_list_is_an_error_but_has_a_page() {
    let service = FakeChannel::new(|_, _, _| value(json!({ "id": 1 })));
    let error_of = |source: &str| chunk_with(source, service.clone()).unwrap_err().message;
    let expected = "tools/x.lua:2: paginate: x.get does not answer with a list; call it by itself";
    assert_eq!(error_of("\nreturn paginate(sdk.x.get):all()"), expected);
    assert_eq!(error_of("\nfor item in paginate(sdk.x.get) do end"), expected);
    let source = "local n = 0 for answer in paginate(sdk.x.get):pages() do n += answer.id end return n";
    assert_eq!(chunk_with(source, service.clone()).unwrap(), json!(1));
}

#[test]
fn a_page_that_fails_is_an_error_at_the_line_that_needs_it() {
    let service = FakeChannel::new(|_, request, _| match request["arguments"].get("page") {
        None => page(&json!([1]), &json!({ "items": [], "next": { "page": 2 }, "mark": "1" })),
        Some(_) => failed("tool_error", "went wrong"),
    });
    for source in [
        "\nfor item in paginate(sdk.x.list) do end",
        "\npaginate(sdk.x.list):all()",
        "\nfor answer in paginate(sdk.x.list):pages() do end",
    ] {
        let failure = chunk_with(source, service.clone()).unwrap_err();
        assert_eq!(failure.message, "tools/x.lua:2: went wrong", "{source}");
        assert_eq!(failure.code.as_deref(), Some("tool_error"));
    }
}

#[test]
fn unreachable_pages_are_logged() {
    let beyond = json!({ "items": [], "beyond": "its next page needs `x`", "mark": "1" });
    let service = FakeChannel::new(move |_, _, _| page(&json!([1]), &beyond));
    assert_eq!(chunk_with("return paginate(sdk.x.list):all()", service.clone()).unwrap(), json!([1]));
    let expected = (LogLevel::Warn, "paginate: x.list has more: its next page needs `x`".to_owned());
    assert_eq!(service.log_lines(), [expected]);
}

#[test]
fn wrong_arguments_are_errors() {
    let expected = "paginate: expected a function of sdk, as in paginate(sdk.github.issues_list, { … }), got";
    assert_eq!(message("\npaginate(print)"), format!("tools/x.lua:2: {expected} a function of the script"));
    assert_eq!(message("\npaginate()"), format!("tools/x.lua:2: {expected} nil"));
    assert_eq!(
        message("\npaginate(sdk.a.b, 1)"),
        "tools/x.lua:2: paginate: the arguments must be a table, got number"
    );
    assert_eq!(
        message("\npaginate(sdk.a.b):all('x')"),
        "tools/x.lua:2: paginate: all(max) takes a number of items, 1 or more"
    );
    assert_eq!(
        message("\npaginate(sdk.a.b).all()"),
        "tools/x.lua:2: call it with a colon: paginate(…):all()"
    );
    assert!(message("paginate(sdk.a.b).x = 1").ends_with("the result of paginate is read-only"));
}
