//! Parses the path of an operation: its placeholders, and a query string that some documents append to it.

/// A parsed path template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathTemplate {
    /// With `{name}` placeholders, and no other braces.
    pub(super) path: String,
    /// The placeholders, each name once, in order of appearance.
    pub(super) placeholders: Vec<Placeholder>,
    /// The query string that follows a question mark.
    pub(super) query: Vec<(String, QueryValue)>,
}

/// A placeholder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placeholder {
    pub(super) name: String,
    /// Whether slashes and other reserved characters stay unencoded (`{+name}`).
    pub(super) is_reserved_allowed: bool,
}

/// Value of a field in the query string of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueryValue {
    /// A fixed value.
    Fixed(String),
    /// The value of the parameter with this name.
    Placeholder(String),
}

/// Parses a path; the error says what is wrong with it.
pub(super) fn parse_template(text: &str) -> Result<PathTemplate, String> {
    let text = text.trim();
    let text = split_outside_braces(text, '#').map_or(text, |(before, _)| before);
    let (text, query) = split_outside_braces(text, '?').unwrap_or((text, ""));
    let mut path = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        path.push('/');
    }
    let mut placeholders: Vec<Placeholder> = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}').ok_or("its path has a brace that is not closed")?;
        if before.contains('}') || inside.contains('{') {
            return Err("its path has braces in braces".to_owned());
        }
        path.push_str(before);
        rest = after;
        // `{?a,b}` lists query parameters, which the operation declares anyway.
        if inside.starts_with(['?', '&']) {
            continue;
        }
        let name = inside.trim_start_matches(['+', '#', '.', '/', ';']).trim_end_matches('*').trim();
        if name.is_empty() {
            return Err("its path has braces without a name".to_owned());
        }
        path.push_str(&format!("{{{name}}}"));
        if placeholders.iter().all(|placeholder| placeholder.name != name) {
            placeholders.push(Placeholder {
                name: name.to_owned(),
                is_reserved_allowed: inside.starts_with(['+', '#']),
            });
        }
    }
    if rest.contains('}') {
        return Err("its path has a brace that is not opened".to_owned());
    }
    path.push_str(rest);
    if path.contains(|c: char| c.is_control()) {
        return Err("its path has a control character".to_owned());
    }
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(parse_query_pair);
    Ok(PathTemplate { path, placeholders, query: query.collect::<Result<_, _>>()? })
}

fn parse_query_pair(pair: &str) -> Result<(String, QueryValue), String> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    if name.contains(['{', '}']) {
        return Err("the query in its path has a name with a placeholder".to_owned());
    }
    let inside = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
    match inside {
        Some(placeholder) if !placeholder.is_empty() && !placeholder.contains(['{', '}']) => {
            Ok((name.to_owned(), QueryValue::Placeholder(placeholder.to_owned())))
        }
        None if !value.contains(['{', '}']) => {
            Ok((name.to_owned(), QueryValue::Fixed(super::documents::percent_decode(value))))
        }
        _ => Err("the query in its path has a value that is only partly a placeholder".to_owned()),
    }
}

fn split_outside_braces(text: &str, delimiter: char) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (index, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            c if c == delimiter && depth == 0 => {
                let after = text.get(index + c.len_utf8()..).unwrap_or_default();
                return text.get(..index).map(|before| (before, after));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn path_templates_are_parsed() {
        for (text, path, placeholders) in [
            ("/pets/{id}/toys/{toyId}", "/pets/{id}/toys/{toyId}", vec!["id", "toyId"]),
            ("pets", "/pets", vec![]),
            ("/v1/{+name}:cancel", "/v1/{name}:cancel", vec!["name"]),
            ("/files/{path*}", "/files/{path}", vec!["path"]),
            ("/{a}/{a}{?b,c}", "/{a}/{a}", vec!["a"]),
            ("/#Action=Do", "/", vec![]),
            ("", "/", vec![]),
        ] {
            let template = parse_template(text).unwrap();
            assert_eq!(template.path, path, "{text}");
            assert_eq!(
                template.placeholders.iter().map(|placeholder| placeholder.name.as_str()).collect::<Vec<_>>(),
                placeholders,
                "{text}"
            );
        }
        for text in ["/{", "/}", "/{}", "/{a{b}}", "/a?x={a}b", "/a?{x}=1"] {
            assert!(parse_template(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_query_in_a_path_is_fixed_values_and_parameters() {
        let query = parse_template("/x?action=do%20it&id={id}&flag").unwrap().query;
        assert_eq!(
            query,
            [
                ("action".to_owned(), QueryValue::Fixed("do it".to_owned())),
                ("id".to_owned(), QueryValue::Placeholder("id".to_owned())),
                ("flag".to_owned(), QueryValue::Fixed(String::new())),
            ]
        );
    }

    proptest! {
        #[test]
        fn every_placeholder_is_in_the_path(text in "[/a{}?#=&*+.]{0,20}") {
            if let Ok(template) = parse_template(&text) {
                prop_assert!(template.path.starts_with('/'));
                let opened = template.path.matches('{').count();
                prop_assert_eq!(opened, template.path.matches('}').count());
                for placeholder in &template.placeholders {
                    let slot_text = format!("{{{}}}", placeholder.name);
                    prop_assert!(template.path.contains(&slot_text));
                }
            }
        }
    }
}
