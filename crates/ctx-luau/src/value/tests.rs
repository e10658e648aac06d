//! Tests of the conversion: the round trip, and what is refused.

use super::{JsonBridge, NODES_MAX, ReadOptions, TABLES_DEEP_MAX, ValueError, WriteOptions, read, write};
use mlua::{Lua, StdLib};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn vm() -> (Lua, JsonBridge) {
    let lua = Lua::new_with(StdLib::ALL_SAFE, mlua::LuaOptions::new()).unwrap();
    let bridge = JsonBridge::new(&lua).unwrap();
    (lua, bridge)
}

fn round_trip(text: &str, options: ReadOptions) -> Result<String, ValueError> {
    let (lua, bridge) = vm();
    let value = read(&lua, &bridge, text.as_bytes(), options)?;
    let json = write(&bridge, &value, WriteOptions { name: "value", bytes_max: 1 << 24 })?;
    Ok(String::from_utf8(json).unwrap())
}

fn written(source: &str) -> Result<String, String> {
    let (lua, bridge) = vm();
    let value: mlua::Value = lua.load(source).eval().unwrap();
    let json = write(&bridge, &value, WriteOptions { name: "result", bytes_max: 1 << 20 });
    json.map(|json| String::from_utf8(json).unwrap()).map_err(|error| error.to_string())
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-(1_i64 << 53)..=1 << 53).prop_map(Json::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Json::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

/// Compares numbers by value: 1.0 is written as 1.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (Json::Number(a), Json::Number(b)) => {
            a == b || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64()
        }
        _ => a == b,
    }
}

fn without_null_fields(value: &Json) -> Json {
    match value {
        Json::Array(items) => items.iter().map(without_null_fields).collect(),
        Json::Object(fields) => {
            let non_null = fields.iter().filter(|(_, value)| !value.is_null());
            Json::Object(non_null.map(|(name, value)| (name.clone(), without_null_fields(value))).collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn every_json_value_comes_back(value in any_json()) {
        let value = json!([value]);
        let text = round_trip(&value.to_string(), ReadOptions { nulls: true }).unwrap();
        let back: Json = serde_json::from_str(&text).unwrap();
        prop_assert!(same(&value, &back), "{value} became {back}");
    }

    #[test]
    fn every_json_value_comes_back_but_for_nulls_in_objects(value in any_json()) {
        let value = json!([value]);
        let text = round_trip(&value.to_string(), ReadOptions::default()).unwrap();
        let back: Json = serde_json::from_str(&text).unwrap();
        let expected = without_null_fields(&value);
        prop_assert!(same(&expected, &back), "{expected} became {back}");
    }

    #[test]
    fn no_text_breaks_the_reader(text in any::<Vec<u8>>()) {
        let (lua, bridge) = vm();
        let read = read(&lua, &bridge, &text, ReadOptions::default());
        prop_assert_eq!(read.is_ok(), serde_json::from_slice::<Json>(&text).is_ok());
    }
}

#[test]
fn integers_keep_every_digit() {
    for digits in
        ["0", "-1", "9007199254740992", "9007199254740993", "-9223372036854775808", "9223372036854775807"]
    {
        let text = format!("{{\"a\":[{digits}],\"b\":{digits}}}");
        assert_eq!(round_trip(&text, ReadOptions::default()).unwrap(), text);
    }
    assert_eq!(
        round_trip("18446744073709551615", ReadOptions::default()).unwrap(),
        "\"18446744073709551615\""
    );
    assert_eq!(round_trip("9007199254740993", ReadOptions::default()).unwrap(), "\"9007199254740993\"");
}

#[test]
fn numbers_are_written_as_json_writes_them() {
    assert_eq!(
        written("{ 1.0, 1.5, -0.25, 1e-7, 2^53, 1e15 }").unwrap(),
        "[1,1.5,-0.25,1e-7,9007199254740992,1000000000000000]"
    );
}

#[test]
fn empty_lists_stay_lists_and_empty_tables_are_objects() {
    assert_eq!(round_trip("{\"a\":[],\"b\":{}}", ReadOptions::default()).unwrap(), "{\"a\":[],\"b\":{}}");
    assert_eq!(written("{}").unwrap(), "{}");
    let (lua, bridge) = vm();
    let list = read(&lua, &bridge, b"[1,2]", ReadOptions::default()).unwrap();
    lua.globals().set("list", &list).unwrap();
    lua.load("table.remove(list) table.remove(list)").exec().unwrap();
    assert_eq!(write(&bridge, &list, WriteOptions { name: "value", bytes_max: 99 }).unwrap(), b"[]");
}

#[test]
fn fields_are_written_by_name() {
    assert_eq!(
        written("{ c = 1, a = 2, b = { z = 1, y = 2 } }").unwrap(),
        "{\"a\":2,\"b\":{\"y\":2,\"z\":1},\"c\":1}"
    );
}

#[test]
fn lists_filled_in_any_order_are_lists() {
    assert_eq!(
        written("(function() local t = {} for i = 9, 1, -1 do t[i] = i end return t end)()").unwrap(),
        "[1,2,3,4,5,6,7,8,9]"
    );
}

#[test]
fn values_without_a_json_form_are_refused_with_their_path() {
    for (source, expected) in [
        ("{ items = { 1, { name = print } } }", "result.items[2].name: JSON has no functions"),
        ("{ ['a b'] = { 0/0 } }", "result[\"a b\"][1]: JSON has no NaN"),
        ("{ a = 1/0 }", "result.a: JSON has no infinity"),
        ("{ a = '\\255' }", "result.a: not UTF-8 at byte 1; encode it with base64.encode"),
        (
            "{ 1, 2, nil, 4 }",
            "result: has an item 4 but no item 3; use json.null for missing items, or string keys",
        ),
        (
            "{ [10] = 1 }",
            "result: has an item 10 but no item 1; use json.null for missing items, or string keys",
        ),
        (
            "{ 1, x = 2 }",
            "result: has both list items and the key \"x\"; in JSON it must be an array or an object",
        ),
        ("{ [true] = 2 }", "result: has the key true; keys of a JSON object are strings"),
        ("{ [1.5] = 2 }", "result: has the key 1.5; keys of a JSON object are strings"),
        ("(function() local t = {} t.a = { t } return t end)()", "result.a[1]: the table contains itself"),
        ("{ a = coroutine.create(print) }", "result.a: JSON has no coroutines"),
        ("{ a = buffer.create(1) }", "result.a: JSON has no buffers"),
        ("string.rep('x', 2^20)", "result: more than 1048576 bytes as JSON"),
    ] {
        assert_eq!(written(source).unwrap_err(), expected, "{source}");
    }
}

#[test]
fn depth_and_size_are_bounded() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    round_trip(&nested(TABLES_DEEP_MAX), ReadOptions::default()).unwrap();
    assert!(round_trip(&nested(TABLES_DEEP_MAX + 1), ReadOptions::default()).is_err());
    let grow = |levels: usize| {
        format!("(function() local t = {{}} for i = 2, {levels} do t = {{ t }} end return t end)()")
    };
    written(&grow(TABLES_DEEP_MAX)).unwrap();
    assert!(written(&grow(TABLES_DEEP_MAX + 1)).unwrap_err().contains("nested deeper than 128 levels"));
    let many = Json::from(vec![0; NODES_MAX]).to_string();
    assert!(matches!(round_trip(&many, ReadOptions::default()), Err(ValueError::TooLarge(_))));
    let shared = "(function() local t = { 1 } for i = 1, 40 do t = { t, t } end return t end)()";
    assert_eq!(written(shared).unwrap_err(), "result: more than 100000 values");
}

#[test]
fn text_after_a_value_is_refused() {
    for text in ["1 2", "", "{", "[1,]", "nul", "'a'"] {
        assert!(round_trip(text, ReadOptions::default()).is_err(), "{text}");
    }
    assert_eq!(round_trip(" [1] ", ReadOptions::default()).unwrap(), json!([1]).to_string());
}
