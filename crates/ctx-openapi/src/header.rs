//! Headers that have parameters: `attachment; filename="a.png"`.

/// The parameters that a text begins with, names in small letters, and what comes after them: nothing, or what a comma
/// begins.
pub(crate) fn parameters(text: &str) -> (Vec<(String, String)>, &str) {
    let mut parameters = Vec::new();
    let mut rest = text.trim_start();
    while let Some(parameter) = rest.strip_prefix(';') {
        let end = parameter.find(['=', ';', ',']).unwrap_or(parameter.len());
        let (name, after) = parameter.split_at(end);
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => value(after.trim_start()),
            None => (String::new(), after),
        };
        parameters.push((name.trim().to_ascii_lowercase(), value));
        rest = after.trim_start();
    }
    (parameters, rest)
}

/// A parameter's value, quoted or not, and what comes after it.
fn value(text: &str) -> (String, &str) {
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
