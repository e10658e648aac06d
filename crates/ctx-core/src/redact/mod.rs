//! Redaction: masks secrets in the run log, logs, error messages and reports.
//!
//! A secret is found verbatim, under JSON, URL, form and HTML escapes in any nesting, and inside base64 and hex
//! (`forms`, `decode`). An Aho-Corasick automaton searches the text and each layer of decoded escapes, and again
//! with lines joined where there is wrapped base64.

mod decode;
mod forms;

use crate::Secret;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind};
use arc_swap::ArcSwap;
use serde_json::Value;
use std::fmt;
use std::sync::{Arc, OnceLock};

const MASK: &str = "***";

/// Length of the shortest secret that is masked; shorter ones would mask ordinary words.
const MASKED_LENGTH_MIN: usize = 6;

/// Maximum number of secrets learned at runtime; each one enlarges the automaton.
const LEARNED_MAX: usize = 256;

/// Maximum layers of escaping that are decoded, as in a JSON body in a JSON string in an SSE event.
const LAYERS_MAX: usize = 4;

/// Environment variable values that are settings, not secrets; masking them would mask ordinary words.
const ORDINARY_VALUES: [&str; 24] = [
    "default",
    "develop",
    "development",
    "disable",
    "disabled",
    "enable",
    "enabled",
    "localhost",
    "master",
    "normal",
    "preview",
    "private",
    "prod",
    "production",
    "public",
    "release",
    "required",
    "sandbox",
    "stable",
    "staging",
    "testing",
    "verbose",
    "warning",
    "warnings",
];

/// Parts of a key that mark its value as secret, whatever the value is.
const SECRET_KEY_PARTS: [&str; 22] = [
    "_pwd",
    "access_key",
    "accesskey",
    "api_key",
    "apikey",
    "authorization",
    "bearer",
    "connection_string",
    "connectionstring",
    "cookie",
    "credential",
    "encryption_key",
    "encryptionkey",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "privatekey",
    "secret",
    "signing_key",
    "signingkey",
    "token",
];

/// Words before `tokens` that mark a key as credentials; `max_tokens` and the like are counts.
const TOKEN_KINDS: [&str; 11] =
    ["access", "api", "auth", "bearer", "bot", "csrf", "device", "jwt", "personal", "refresh", "session"];

/// Whether the value of an environment variable is too common to mask: shorter than six bytes, a number of up to
/// nine digits, or a setting like `production`. All other values are treated as secrets.
pub fn is_ordinary_value(value: &str) -> bool {
    let value = value.trim();
    value.len() < MASKED_LENGTH_MIN
        || (value.len() <= 9 && value.bytes().all(|byte| byte.is_ascii_digit()))
        || ORDINARY_VALUES.contains(&value.to_ascii_lowercase().as_str())
}

/// Masks known secrets in any text, and the values of secret-looking keys in any JSON.
///
/// Clones share learned secrets.
#[derive(Clone, Debug, Default)]
pub struct Redactor(Arc<ArcSwap<SecretSet>>);

/// An immutable snapshot of the secrets.
#[derive(Debug, Default)]
struct SecretSet {
    /// Masked for the lifetime of the redactor.
    fixed: Arc<[Secret]>,
    /// Issued at runtime, such as access tokens; can be unlearned.
    learned: Vec<Secret>,
    /// Built on first use.
    matcher: OnceLock<SecretMatcher>,
}

/// A multi-pattern search for all secrets, each verbatim and in its encodings.
struct SecretMatcher {
    automaton: SearchAutomaton,
    /// By pattern: how far the secret extends beyond the match.
    margins: Vec<MatchMargins>,
}

enum SearchAutomaton {
    /// There are no secrets.
    NoSecrets,
    Built(AhoCorasick),
    /// The automaton cannot be built, so every text is masked whole.
    Unavailable,
}

#[derive(Clone, Copy, Default)]
struct MatchMargins {
    /// Bytes of the encoded secret after the match, if the pattern is only its beginning.
    rest: usize,
    /// Base64 digits just before the match that mix bits of the secret with those of the byte before.
    before: usize,
    /// Base64 digits just after the match and `rest` that mix bits of the secret with those of the byte after.
    after: usize,
}

impl Redactor {
    /// Masks these secrets, except very short ones.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let fixed = secrets.into_iter().filter(|secret| secret.expose().len() >= MASKED_LENGTH_MIN).collect();
        Self(Arc::new(ArcSwap::from_pointee(SecretSet { fixed, ..SecretSet::default() })))
    }

    /// Also masks this secret from now on, unless it is very short or too many are learned already.
    pub fn learn(&self, secret: &Secret) {
        if !self.0.load().should_learn(secret) {
            return;
        }
        self.0.rcu(|current| {
            let mut learned = current.learned.clone();
            if current.should_learn(secret) {
                learned.push(secret.clone());
            }
            SecretSet { fixed: current.fixed.clone(), learned, matcher: OnceLock::new() }
        });
    }

    /// Also masks the current secrets of another redactor from now on; those that it learned become fixed.
    pub fn absorb(&self, other: &Self) {
        let added = other.0.load();
        self.0.rcu(|current| {
            let is_new = |secret: &&Secret| !current.fixed.contains(secret);
            let fixed = current.fixed.iter().chain(added.fixed.iter().chain(&added.learned).filter(is_new));
            SecretSet {
                fixed: fixed.cloned().collect(),
                learned: current.learned.clone(),
                matcher: OnceLock::new(),
            }
        });
    }

    /// Stops masking a learned secret that is no longer valid.
    pub fn unlearn(&self, secret: &Secret) {
        if self.0.load().learned.contains(secret) {
            self.0.rcu(|current| SecretSet {
                fixed: current.fixed.clone(),
                learned: current.learned.iter().filter(|other| *other != secret).cloned().collect(),
                matcher: OnceLock::new(),
            });
        }
    }

    /// Whether the value of this key must be masked, judged by the key's name.
    pub fn is_secret_key(key: &str) -> bool {
        let key = key.to_ascii_lowercase().replace('-', "_");
        let is_secret = |key: &str| SECRET_KEY_PARTS.iter().any(|part| key.contains(part));
        match key.strip_suffix("tokens").map(|prefix| prefix.trim_end_matches('_')) {
            Some(prefix) => {
                prefix == "id" || is_secret(prefix) || TOKEN_KINDS.iter().any(|kind| prefix.ends_with(kind))
            }
            None => is_secret(&key),
        }
    }

    /// The text with every known secret masked.
    pub fn text(&self, text: String) -> String {
        let current = self.0.load();
        match current.matcher().spans(text.as_bytes()) {
            spans if spans.is_empty() => text,
            spans => mask_spans(text.as_bytes(), spans),
        }
    }

    /// The value with known secrets and the values of secret-looking keys masked.
    pub fn json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text.clone())),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.json(item)).collect()),
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, value)| {
                        let shown = if Self::is_secret_key(key) && !value.is_null() {
                            Value::String(MASK.to_owned())
                        } else {
                            self.json(value)
                        };
                        (self.text(key.clone()), shown)
                    })
                    .collect(),
            ),
            other => other.clone(),
        }
    }
}

impl SecretSet {
    fn should_learn(&self, secret: &Secret) -> bool {
        secret.expose().len() >= MASKED_LENGTH_MIN
            && self.learned.len() < LEARNED_MAX
            && !self.learned.contains(secret)
            && !self.fixed.contains(secret)
    }

    fn matcher(&self) -> &SecretMatcher {
        self.matcher.get_or_init(|| SecretMatcher::new(self.fixed.iter().chain(&self.learned)))
    }
}

impl SecretMatcher {
    fn new<'a>(secrets: impl Iterator<Item = &'a Secret>) -> Self {
        let forms: Vec<_> = secrets.flat_map(|secret| forms::forms(secret.expose())).collect();
        if forms.is_empty() {
            return Self { automaton: SearchAutomaton::NoSecrets, margins: Vec::new() };
        }
        // Searches as fast as the other kinds of automaton and builds in a sixth of the time; each call of an upstream
        // HTTP API builds one.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let automaton = AhoCorasickBuilder::new().kind(kind).build(forms.iter().map(|form| &form.bytes));
        let automaton = automaton.map_or_else(
            |error| {
                tracing::error!(%error, "cannot build the search for secrets; all text is masked");
                SearchAutomaton::Unavailable
            },
            SearchAutomaton::Built,
        );
        let margins = |form: &forms::SecretForm| MatchMargins {
            rest: form.rest,
            before: form.before,
            after: form.after,
        };
        Self { automaton, margins: forms.iter().map(margins).collect() }
    }

    /// Byte spans of secrets in a text, unsorted; they may overlap.
    fn spans(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let automaton = match &self.automaton {
            SearchAutomaton::NoSecrets => return Vec::new(),
            SearchAutomaton::Built(automaton) => automaton,
            SearchAutomaton::Unavailable => return vec![(0, text.len())],
        };
        let mut spans = Vec::new();
        let mut layers: Vec<decode::DecodedText> = Vec::new();
        loop {
            let layer = layers.last().map_or(text, |layer| &layer.bytes);
            let mut found = self.literal_spans(automaton, layer);
            if let Some(joined) = decode::join_lines(layer) {
                let in_joined = self.literal_spans(automaton, &joined.bytes);
                found.extend(in_joined.into_iter().map(|span| joined.source_span(span)));
            }
            let to_text_span = |span| layers.iter().rev().fold(span, |span, layer| layer.source_span(span));
            spans.extend(found.into_iter().map(to_text_span));
            if layers.len() == LAYERS_MAX {
                return spans;
            }
            match decode::decode(layer) {
                Some(decoded) => layers.push(decoded),
                None => return spans,
            }
        }
    }

    /// Byte spans of secrets in a text as it stands, without decoding.
    fn literal_spans(&self, automaton: &AhoCorasick, text: &[u8]) -> Vec<(usize, usize)> {
        // Fast path: most texts have no match, and the overlapping search is much slower.
        if !automaton.is_match(text) {
            return Vec::new();
        }
        let is_base64_digit = |at: usize| {
            text.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte))
        };
        let span = |found: aho_corasick::Match| {
            let MatchMargins { rest, before, after } =
                self.margins.get(found.pattern().as_usize()).copied().unwrap_or_default();
            let (mut start, mut end) = (found.start(), found.end().saturating_add(rest).min(text.len()));
            for _ in 0..before {
                start -= usize::from(start > 0 && is_base64_digit(start - 1));
            }
            for _ in 0..after {
                end += usize::from(is_base64_digit(end));
            }
            (start, end)
        };
        automaton.find_overlapping_iter(text).map(span).collect()
    }
}

impl fmt::Debug for SecretMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The automaton holds the secrets.
        f.debug_struct("SecretMatcher").field("forms", &self.margins.len()).finish_non_exhaustive()
    }
}

/// The text with each span masked; spans that touch or overlap get one mask.
fn mask_spans(text: &[u8], mut spans: Vec<(usize, usize)>) -> String {
    spans.sort_unstable();
    let mut shown = Vec::with_capacity(text.len());
    let mut at = 0;
    for (start, end) in spans {
        // The second case is the first span, at the start of the text.
        if start > at || shown.is_empty() && at == 0 {
            shown.extend_from_slice(&text[at..start]);
            shown.extend_from_slice(MASK.as_bytes());
        }
        at = at.max(end);
    }
    shown.extend_from_slice(&text[at..]);
    String::from_utf8(shown).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests;
