//! Values that must not be shown, and the mask that keeps them out of what we write.

use arc_swap::ArcSwap;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

const MASK: &str = "***";

/// Shorter values would mask ordinary words.
const MASKED_LENGTH_MIN: usize = 6;

/// Values that are learned; each costs a search in every text.
const LEARNED_MAX: usize = 256;

/// Parts of a key that mark its value as secret, whatever the value is.
const SECRET_KEY_PARTS: [&str; 10] = [
    "apikey",
    "api_key",
    "authorization",
    "credential",
    "passwd",
    "password",
    "private_key",
    "privatekey",
    "secret",
    "token",
];

/// A value that can be used but not printed: no `Display`, no `Serialize`, a mute `Debug`.
#[derive(Clone, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Masks known secrets in any text, and secret-looking keys in any JSON.
///
/// Clones share what they learn.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    secrets: Vec<Secret>,
    /// What was handed out while we run.
    learned: Arc<ArcSwap<Vec<Secret>>>,
}

impl Redactor {
    /// Masks these values; very short ones are left out.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<_> =
            secrets.into_iter().filter(|secret| secret.0.len() >= MASKED_LENGTH_MIN).collect();
        // Longest first: a secret that contains another is masked whole.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.0.len()));
        Self { secrets, learned: Arc::default() }
    }

    /// Masks this value, too, from now on.
    pub fn learn(&self, secret: &Secret) {
        let worth_it = |known: &[Secret]| {
            secret.0.len() >= MASKED_LENGTH_MIN && known.len() < LEARNED_MAX && !known.contains(secret)
        };
        if self.secrets.contains(secret) || !worth_it(&self.learned.load()) {
            return;
        }
        self.learned.rcu(|known| {
            let mut known = known.to_vec();
            if worth_it(&known) {
                known.push(secret.clone());
                known.sort_by_key(|secret| std::cmp::Reverse(secret.0.len()));
            }
            known
        });
    }

    /// Masks a value no longer that was learned and is of no use any more.
    pub fn unlearn(&self, secret: &Secret) {
        if self.learned.load().contains(secret) {
            self.learned.rcu(|known| known.iter().filter(|one| *one != secret).cloned().collect::<Vec<_>>());
        }
    }

    /// Whether a key of this name holds something that must not be shown.
    pub fn is_secret_key(key: &str) -> bool {
        let key = key.to_ascii_lowercase().replace('-', "_");
        // `max_tokens` counts, it does not authenticate.
        !key.ends_with("tokens") && SECRET_KEY_PARTS.iter().any(|part| key.contains(part))
    }

    /// The text with every known secret masked.
    pub fn text(&self, text: String) -> String {
        let learned = self.learned.load();
        self.secrets.iter().chain(learned.iter()).fold(text, |text, secret| {
            if text.contains(secret.expose()) { text.replace(secret.expose(), MASK) } else { text }
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_prints_as_nothing() {
        assert_eq!(format!("{:?}", Secret::new("hunter2hunter2")), "Secret(***)");
    }

    #[test]
    fn what_is_learned_is_masked_by_every_clone() {
        let redactor = Redactor::new([]);
        let clone = redactor.clone();
        redactor.learn(&Secret::new("hunter2!"));
        redactor.learn(&Secret::new("no"));
        assert_eq!(clone.text("no hunter2!".to_owned()), "no ***");
        clone.unlearn(&Secret::new("hunter2!"));
        assert_eq!(redactor.text("no hunter2!".to_owned()), "no hunter2!");
    }

    #[test]
    fn secrets_are_masked_by_value_and_by_key() {
        let redactor = Redactor::new([Secret::new("hunter2!"), Secret::new("no")]);
        let shown = redactor.json(&json!({
            "url": "https://x/?k=hunter2!", "api_token": 7, "note": "no", "max_tokens": 3,
            "list": ["hunter2!"],
        }));
        assert_eq!(
            shown,
            json!({
                "url": "https://x/?k=***", "api_token": "***", "note": "no", "max_tokens": 3,
                "list": ["***"],
            })
        );
    }
}
