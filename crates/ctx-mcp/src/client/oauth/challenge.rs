//! The `WWW-Authenticate` challenge of a 401 or 403 response.

/// Bytes of a list of scopes; a longer one counts as empty.
const SCOPES_BYTES_MAX: usize = 4 << 10;

/// The parameters of a `Bearer` challenge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// The URL of the protected resource metadata (RFC 9728).
    pub(super) resource_metadata_url: Option<String>,
    /// The scopes that are required.
    pub(super) scopes: Vec<String>,
    /// The error code, such as `insufficient_scope`.
    pub(super) error: Option<String>,
}

impl Challenge {
    /// Parses the `Bearer` challenge of a header; other schemes are ignored.
    pub(super) fn parse(header: &str) -> Self {
        let mut challenge = Self::default();
        let mut is_bearer = false;
        let mut rest = header;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let value = after.trim_start().strip_prefix('=').map(str::trim_start);
            match value {
                Some(value) => {
                    let (value, after) = read_value(value);
                    if is_bearer {
                        challenge.set_parameter(word, value);
                    }
                    rest = after;
                }
                None if word.is_empty() => return challenge,
                None => {
                    is_bearer = word.eq_ignore_ascii_case("bearer");
                    rest = after;
                }
            }
        }
    }

    fn set_parameter(&mut self, name: &str, value: String) {
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => self.resource_metadata_url = Some(value),
            "scope" => self.scopes = parse_scopes(&value),
            "error" => self.error = Some(value),
            _ => {}
        }
    }
}

/// Parses a list of scopes separated by spaces, without duplicates. A list that is too long counts as empty.
pub(super) fn parse_scopes(text: &str) -> Vec<String> {
    let mut scopes: Vec<String> = Vec::new();
    if text.len() <= SCOPES_BYTES_MAX {
        for scope in text.split_ascii_whitespace() {
            if !scopes.iter().any(|known| known == scope) {
                scopes.push(scope.to_owned());
            }
        }
    }
    scopes
}

/// Splits off the value of a parameter, quoted or not; returns the value and the rest.
fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_bearer_challenge_is_parsed() {
        let header = "Basic realm=\"x\", scope=\"no\", Bearer error=insufficient_scope , scope = \"a b a\", \
                      resource_metadata=\"https://s.example/m?a=\\\"b\\\"\", Digest scope=\"no\"";
        let challenge = Challenge::parse(header);
        assert_eq!(challenge.scopes, ["a", "b"]);
        assert_eq!(challenge.error.as_deref(), Some("insufficient_scope"));
        assert_eq!(challenge.resource_metadata_url.as_deref(), Some("https://s.example/m?a=\"b\""));
        for nothing in ["", "Bearer", "bearer ,,", "Negotiate abc==", "Bearer scope=\"\""] {
            assert_eq!(Challenge::parse(nothing), Challenge::default(), "{nothing}");
        }
    }

    proptest! {
        #[test]
        fn any_header_can_be_read(header in ".{0,200}") {
            Challenge::parse(&header);
        }

        #[test]
        fn bearer_parameters_are_parsed_as_written(scope in "[a-z:./]{1,20}", other in "[^\"\\\\]{0,40}") {
            let header = format!("Bearer realm=\"{other}\", scope=\"{scope}\", error=\"{other}\"");
            let challenge = Challenge::parse(&header);
            prop_assert_eq!(challenge.scopes, vec![scope]);
            prop_assert_eq!(challenge.error, Some(other));
        }
    }
}
