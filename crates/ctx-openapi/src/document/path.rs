//! Parses the path of an operation: its placeholders, and a query string that some documents append to it.

/// A parsed path template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// With `{name}` placeholders, and no other braces.
    pub(super) path: String,
    /// The placeholders, each name once, in order of appearance.
    pub(super) slots: Vec<Slot>,
    /// The query string that follows a question mark.
    pub(super) query: Vec<(String, Piece)>,
}

/// A placeholder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) name: String,
    /// Whether slashes and other reserved characters stay unencoded (`{+name}`).
    pub(super) is_reserved_allowed: bool,
}

/// Value of a field in the query string of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A fixed value.
    Fixed(String),
    /// The value of the parameter with this name.
    Slot(String),
}

/// Parses a path; the error says what is wrong with it.
pub(super) fn template(raw: &str) -> Result<Template, String> {
    let raw = raw.trim();
    let raw = outside_of_braces(raw, '#').map_or(raw, |(before, _)| before);
    let (raw, query) = outside_of_braces(raw, '?').unwrap_or((raw, ""));
    let mut path = String::with_capacity(raw.len() + 1);
    if !raw.starts_with('/') {
        path.push('/');
    }
    let mut slots: Vec<Slot> = Vec::new();
    let mut rest = raw;
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
        if slots.iter().all(|slot| slot.name != name) {
            slots.push(Slot { name: name.to_owned(), is_reserved_allowed: inside.starts_with(['+', '#']) });
        }
    }
    if rest.contains('}') {
        return Err("its path has a brace that is not opened".to_owned());
    }
    path.push_str(rest);
    if path.contains(|c: char| c.is_control()) {
        return Err("its path has a control character".to_owned());
    }
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(piece);
    Ok(Template { path, slots, query: query.collect::<Result<_, _>>()? })
}

fn piece(pair: &str) -> Result<(String, Piece), String> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    if name.contains(['{', '}']) {
        return Err("the query in its path has a name that is not fixed".to_owned());
    }
    let inside = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
    match inside {
        Some(slot) if !slot.is_empty() && !slot.contains(['{', '}']) => {
            Ok((name.to_owned(), Piece::Slot(slot.to_owned())))
        }
        None if !value.contains(['{', '}']) => {
            Ok((name.to_owned(), Piece::Fixed(super::sources::percent_decoded(value))))
        }
        _ => Err("the query in its path has a value that is only partly fixed".to_owned()),
    }
}

fn outside_of_braces(text: &str, wanted: char) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (place, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            c if c == wanted && depth == 0 => {
                let after = text.get(place + c.len_utf8()..).unwrap_or_default();
                return text.get(..place).map(|before| (before, after));
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
    fn paths_are_read_as_they_are_written() {
        for (raw, path, slots) in [
            ("/pets/{id}/toys/{toyId}", "/pets/{id}/toys/{toyId}", vec!["id", "toyId"]),
            ("pets", "/pets", vec![]),
            ("/v1/{+name}:cancel", "/v1/{name}:cancel", vec!["name"]),
            ("/files/{path*}", "/files/{path}", vec!["path"]),
            ("/{a}/{a}{?b,c}", "/{a}/{a}", vec!["a"]),
            ("/#Action=Do", "/", vec![]),
            ("", "/", vec![]),
        ] {
            let template = template(raw).unwrap();
            assert_eq!(template.path, path, "{raw}");
            assert_eq!(
                template.slots.iter().map(|slot| slot.name.as_str()).collect::<Vec<_>>(),
                slots,
                "{raw}"
            );
        }
        for raw in ["/{", "/}", "/{}", "/{a{b}}", "/a?x={a}b", "/a?{x}=1"] {
            assert!(template(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn a_query_in_a_path_is_fixed_values_and_parameters() {
        let query = template("/x?action=do%20it&id={id}&flag").unwrap().query;
        assert_eq!(
            query,
            [
                ("action".to_owned(), Piece::Fixed("do it".to_owned())),
                ("id".to_owned(), Piece::Slot("id".to_owned())),
                ("flag".to_owned(), Piece::Fixed(String::new())),
            ]
        );
    }

    proptest! {
        #[test]
        fn every_slot_stands_in_the_path(raw in "[/a{}?#=&*+.]{0,20}") {
            if let Ok(template) = template(&raw) {
                prop_assert!(template.path.starts_with('/'));
                let opened = template.path.matches('{').count();
                prop_assert_eq!(opened, template.path.matches('}').count());
                for slot in &template.slots {
                    let slot_text = format!("{{{}}}", slot.name);
                    prop_assert!(template.path.contains(&slot_text));
                }
            }
        }
    }
}
