//! Parses header parameters, as in `attachment; filename="a.png"`.

/// The parameters that a text begins with, their names in lower case, and the rest after them: empty, or from
/// the next comma on.
pub(crate) fn parse_parameters(text: &str) -> (Vec<(String, String)>, &str) {
    let mut parameters = Vec::new();
    let mut rest = text.trim_start();
    while let Some(parameter) = rest.strip_prefix(';') {
        let end = parameter.find(['=', ';', ',']).unwrap_or(parameter.len());
        let (name, after) = parameter.split_at(end);
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => parse_value(after.trim_start()),
            None => (String::new(), after),
        };
        parameters.push((name.trim().to_ascii_lowercase(), value));
        rest = after.trim_start();
    }
    (parameters, rest)
}

/// The value of a parameter, quoted or not, and the rest after it.
fn parse_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        let (value, after) = text.split_at(end);
        return (value.trim().to_owned(), after);
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, letter) in quoted.char_indices() {
        match letter {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return (value, quoted.get(at + 1..).unwrap_or_default()),
            letter => {
                value.push(letter);
                is_escaped = false;
            }
        }
    }
    (value, "")
}
