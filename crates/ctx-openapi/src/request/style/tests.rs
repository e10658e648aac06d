//! Serialization by style: the examples of the specification, and cases that it leaves open.

use super::*;
use serde_json::json;

/// The values of the specification's table, for a parameter `color`.
fn examples() -> [Value; 4] {
    [json!(""), json!("blue"), json!(["blue", "black", "brown"]), json!({ "R": 100, "G": 200, "B": 150 })]
}

#[test]
fn paths_are_written_as_the_specification_shows() {
    for (style, explode, expected) in [
        (
            Style::Matrix,
            false,
            [";color", ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"],
        ),
        (
            Style::Matrix,
            true,
            [";color", ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"],
        ),
        (Style::Label, false, [".", ".blue", ".blue,black,brown", ".R,100,G,200,B,150"]),
        (Style::Label, true, [".", ".blue", ".blue.black.brown", ".R=100.G=200.B=150"]),
        (Style::Simple, false, ["", "blue", "blue,black,brown", "R,100,G,200,B,150"]),
        (Style::Simple, true, ["", "blue", "blue,black,brown", "R=100,G=200,B=150"]),
    ] {
        for (value, expected) in examples().iter().zip(expected) {
            let written = in_path("color", value, style, explode);
            assert_eq!(written.as_deref(), Some(expected), "{style:?} {explode} {value}");
        }
    }
}

#[test]
fn queries_are_written_as_the_specification_shows() {
    let deep = "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150";
    for (style, explode, expected) in [
        (Style::Form, false, ["color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"]),
        (
            Style::Form,
            true,
            ["color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"],
        ),
        (
            Style::SpaceDelimited,
            false,
            ["color=", "color=blue", "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"],
        ),
        (
            Style::SpaceDelimited,
            true,
            ["color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"],
        ),
        (
            Style::PipeDelimited,
            false,
            ["color=", "color=blue", "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"],
        ),
        (
            Style::PipeDelimited,
            true,
            ["color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"],
        ),
        (
            Style::TabDelimited,
            false,
            ["color=", "color=blue", "color=blue%09black%09brown", "color=R%09100%09G%09200%09B%09150"],
        ),
        (
            Style::DeepObject,
            true,
            ["color=", "color=blue", "color%5B%5D=blue&color%5B%5D=black&color%5B%5D=brown", deep],
        ),
        (
            Style::DeepObject,
            false,
            ["color=", "color=blue", "color%5B%5D=blue&color%5B%5D=black&color%5B%5D=brown", deep],
        ),
        // Styles that are invalid in a query.
        (Style::Simple, false, ["color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"]),
    ] {
        for (value, expected) in examples().iter().zip(expected) {
            let written = in_query("color", value, style, explode, false).join("&");
            assert_eq!(written, expected, "{style:?} {explode} {value}");
        }
    }
}

#[test]
fn headers_are_written_as_they_are() {
    for (explode, expected) in [
        (false, ["", "blue", "blue,black,brown", "R,100,G,200,B,150"]),
        (true, ["", "blue", "blue,black,brown", "R=100,G=200,B=150"]),
    ] {
        for (value, expected) in examples().iter().zip(expected) {
            assert_eq!(in_header(value, Style::Simple, explode).as_deref(), Some(expected));
        }
    }
    assert_eq!(in_header(&json!("a b/c=é"), Style::Simple, false).unwrap(), "a b/c=é");
}

#[test]
fn cookies_are_pairs_of_their_own() {
    for (explode, expected) in [
        (false, ["color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"]),
        (true, ["color=", "color=blue", "color=blue; color=black; color=brown", "R=100; G=200; B=150"]),
    ] {
        for (value, expected) in examples().iter().zip(expected) {
            assert_eq!(in_cookies("color", value, explode).join("; "), expected);
        }
    }
    assert_eq!(in_cookies("a", &json!("x; admin=1"), true), ["a=x%3B%20admin=1"]);
}

#[test]
fn delimiters_inside_of_values_are_told_from_those_between_them() {
    let value = json!(["a,b", "c|d e"]);
    assert_eq!(in_query("q", &value, Style::Form, false, false), ["q=a%2Cb,c%7Cd%20e"]);
    assert_eq!(in_path("q", &value, Style::Simple, false).unwrap(), "a%2Cb,c%7Cd%20e");
}

#[test]
fn delimiters_of_the_second_version_hold_in_paths_and_headers_too() {
    let value = json!(["a", "b"]);
    for (style, in_a_path, in_a_header) in [
        (Style::SpaceDelimited, "a%20b", "a b"),
        (Style::PipeDelimited, "a%7Cb", "a|b"),
        (Style::TabDelimited, "a%09b", "a\tb"),
    ] {
        assert_eq!(in_path("q", &value, style, false).as_deref(), Some(in_a_path));
        assert_eq!(in_header(&value, style, false).as_deref(), Some(in_a_header));
    }
}

#[test]
fn deep_objects_are_written_to_their_depth() {
    let value = json!({ "a": { "b": [1, 2] }, "c": [{ "d": true }], "e": null });
    let written = in_query("f", &value, Style::DeepObject, true, false).join("&");
    assert_eq!(written.replace("%5B", "[").replace("%5D", "]"), "f[a][b][]=1&f[a][b][]=2&f[c][0][d]=true");
}

#[test]
fn what_a_style_cannot_say_is_json() {
    let value = json!([{ "a": 1 }]);
    assert_eq!(in_query("q", &value, Style::Form, true, false), ["q=%7B%22a%22%3A1%7D"]);
    assert_eq!(in_header(&value, Style::Simple, false).unwrap(), "{\"a\":1}");
}

#[test]
fn what_is_null_or_empty_is_left_out() {
    for value in [json!(null), json!([]), json!({}), json!([null]), json!({ "a": null })] {
        for explode in [false, true] {
            assert!(in_query("q", &value, Style::Form, explode, false).is_empty(), "{value}");
            assert!(in_cookies("q", &value, explode).is_empty(), "{value}");
            assert_eq!(in_header(&value, Style::Simple, explode), None);
            assert_eq!(in_path("q", &value, Style::Label, explode), None);
        }
    }
}
