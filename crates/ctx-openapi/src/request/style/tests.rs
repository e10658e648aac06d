//! Serialization by style: the examples of the specification, and cases that it leaves open.

use super::*;
use serde_json::json;

/// The values of the specification's table, for a parameter `color`.
fn examples() -> [Value; 4] {
    [json!(""), json!("blue"), json!(["blue", "black", "brown"]), json!({ "R": 100, "G": 200, "B": 150 })]
}

#[test]
fn path_values_follow_the_specification() {
    for (style, explode, expected) in [
        (
            ParameterStyle::Matrix,
            false,
            [";color", ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"],
        ),
        (
            ParameterStyle::Matrix,
            true,
            [";color", ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"],
        ),
        (ParameterStyle::Label, false, [".", ".blue", ".blue,black,brown", ".R,100,G,200,B,150"]),
        (ParameterStyle::Label, true, [".", ".blue", ".blue.black.brown", ".R=100.G=200.B=150"]),
        (ParameterStyle::Simple, false, ["", "blue", "blue,black,brown", "R,100,G,200,B,150"]),
        (ParameterStyle::Simple, true, ["", "blue", "blue,black,brown", "R=100,G=200,B=150"]),
    ] {
        for (value, expected) in examples().iter().zip(expected) {
            let join_pair = path_text("color", value, style, explode);
            assert_eq!(join_pair.as_deref(), Some(expected), "{style:?} {explode} {value}");
        }
    }
}

#[test]
fn query_values_follow_the_specification() {
    let deep = "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150";
    for (style, explode, expected) in [
        (
            ParameterStyle::Form,
            false,
            ["color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"],
        ),
        (
            ParameterStyle::Form,
            true,
            ["color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"],
        ),
        (
            ParameterStyle::SpaceDelimited,
            false,
            ["color=", "color=blue", "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"],
        ),
        (
            ParameterStyle::SpaceDelimited,
            true,
            ["color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"],
        ),
        (
            ParameterStyle::PipeDelimited,
            false,
            ["color=", "color=blue", "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"],
        ),
        (
            ParameterStyle::PipeDelimited,
            true,
            ["color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"],
        ),
        (
            ParameterStyle::TabDelimited,
            false,
            ["color=", "color=blue", "color=blue%09black%09brown", "color=R%09100%09G%09200%09B%09150"],
        ),
        (
            ParameterStyle::DeepObject,
            true,
            ["color=", "color=blue", "color%5B%5D=blue&color%5B%5D=black&color%5B%5D=brown", deep],
        ),
        (
            ParameterStyle::DeepObject,
            false,
            ["color=", "color=blue", "color%5B%5D=blue&color%5B%5D=black&color%5B%5D=brown", deep],
        ),
        // Styles that are invalid in a query.
        (
            ParameterStyle::Simple,
            false,
            ["color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"],
        ),
    ] {
        for (value, expected) in examples().iter().zip(expected) {
            let join_pair = query_pairs("color", value, style, explode, false).join("&");
            assert_eq!(join_pair, expected, "{style:?} {explode} {value}");
        }
    }
}

#[test]
fn header_values_are_not_encoded() {
    for (explode, expected) in [
        (false, ["", "blue", "blue,black,brown", "R,100,G,200,B,150"]),
        (true, ["", "blue", "blue,black,brown", "R=100,G=200,B=150"]),
    ] {
        for (value, expected) in examples().iter().zip(expected) {
            assert_eq!(header_text(value, ParameterStyle::Simple, explode).as_deref(), Some(expected));
        }
    }
    assert_eq!(header_text(&json!("a b/c=é"), ParameterStyle::Simple, false).unwrap(), "a b/c=é");
}

#[test]
fn cookie_values_are_pairs() {
    for (explode, expected) in [
        (false, ["color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"]),
        (true, ["color=", "color=blue", "color=blue; color=black; color=brown", "R=100; G=200; B=150"]),
    ] {
        for (value, expected) in examples().iter().zip(expected) {
            assert_eq!(cookie_pairs("color", value, explode).join("; "), expected);
        }
    }
    assert_eq!(cookie_pairs("a", &json!("x; admin=1"), true), ["a=x%3B%20admin=1"]);
}

#[test]
fn delimiters_inside_values_are_encoded() {
    let value = json!(["a,b", "c|d e"]);
    assert_eq!(query_pairs("q", &value, ParameterStyle::Form, false, false), ["q=a%2Cb,c%7Cd%20e"]);
    assert_eq!(path_text("q", &value, ParameterStyle::Simple, false).unwrap(), "a%2Cb,c%7Cd%20e");
}

#[test]
fn delimiters_of_swagger_2_apply_in_paths_and_headers_too() {
    let value = json!(["a", "b"]);
    for (style, in_a_path, in_a_header) in [
        (ParameterStyle::SpaceDelimited, "a%20b", "a b"),
        (ParameterStyle::PipeDelimited, "a%7Cb", "a|b"),
        (ParameterStyle::TabDelimited, "a%09b", "a\tb"),
    ] {
        assert_eq!(path_text("q", &value, style, false).as_deref(), Some(in_a_path));
        assert_eq!(header_text(&value, style, false).as_deref(), Some(in_a_header));
    }
}

#[test]
fn deep_objects_are_serialized_recursively() {
    let value = json!({ "a": { "b": [1, 2] }, "c": [{ "d": true }], "e": null });
    let join_pair = query_pairs("f", &value, ParameterStyle::DeepObject, true, false).join("&");
    assert_eq!(join_pair.replace("%5B", "[").replace("%5D", "]"), "f[a][b][]=1&f[a][b][]=2&f[c][0][d]=true");
}

#[test]
fn what_a_style_cannot_express_is_json() {
    let value = json!([{ "a": 1 }]);
    assert_eq!(query_pairs("q", &value, ParameterStyle::Form, true, false), ["q=%7B%22a%22%3A1%7D"]);
    assert_eq!(header_text(&value, ParameterStyle::Simple, false).unwrap(), "{\"a\":1}");
}

#[test]
fn null_and_empty_values_are_left_out() {
    for value in [json!(null), json!([]), json!({}), json!([null]), json!({ "a": null })] {
        for explode in [false, true] {
            assert!(query_pairs("q", &value, ParameterStyle::Form, explode, false).is_empty(), "{value}");
            assert!(cookie_pairs("q", &value, explode).is_empty(), "{value}");
            assert_eq!(header_text(&value, ParameterStyle::Simple, explode), None);
            assert_eq!(path_text("q", &value, ParameterStyle::Label, explode), None);
        }
    }
}
