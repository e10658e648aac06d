//! Redacts this process's own output: masks the secrets of every loaded configuration on stderr, in the log
//! and in reports. Results of tools and contents of documents are printed unmasked.

use crate::progress;
use async_trait::async_trait;
use ctx_core::{
    Connector, Cursor, PullResult, Redactor, Secret, Sink, SourceError, Watcher, is_ordinary_value,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use tracing_subscriber::fmt::MakeWriter;

/// Maximum number of sets of secrets.
const SETS_MAX: usize = 16;
/// Number of sets that are never evicted: those of the configurations that the process started with. Later
/// sets come from edits of a configuration file while a server runs.
const SETS_PINNED: usize = 8;

/// Variables that are never secret: masking their values would hide paths and user names in every message.
const ORDINARY_VARIABLES: [&str; 14] = [
    "APPDATA",
    "HOME",
    "HOSTNAME",
    "LANG",
    "LOCALAPPDATA",
    "LOGNAME",
    "PATH",
    "PWD",
    "SHELL",
    "TEMP",
    "TMPDIR",
    "USER",
    "USERNAME",
    "USERPROFILE",
];

static MASKS: RwLock<SecretMasks> = RwLock::new(SecretMasks(Vec::new()));

/// Sets of secrets, each with its redactor, which may have learned more secrets since.
struct SecretMasks(Vec<(Vec<Secret>, Redactor)>);

impl SecretMasks {
    /// The redactor for these secrets. Equal sets share one, so that reloading an unchanged configuration
    /// adds nothing.
    fn redactor(&mut self, secrets: Vec<Secret>) -> Redactor {
        if let Some((_, redactor)) = self.0.iter().find(|(known, _)| *known == secrets) {
            return redactor.clone();
        }
        if self.0.len() == SETS_MAX {
            self.0.remove(SETS_PINNED);
        }
        let redactor = Redactor::new(secrets.iter().cloned());
        self.0.push((secrets, redactor.clone()));
        redactor
    }

    fn text(&self, text: String) -> String {
        self.0.iter().fold(text, |text, (_, redactor)| redactor.text(text))
    }
}

/// Registers these secrets for masking, and returns their redactor.
pub(crate) fn redactor(secrets: Vec<Secret>) -> Redactor {
    MASKS.write().unwrap_or_else(PoisonError::into_inner).redactor(secrets)
}

/// The text with secrets masked.
pub(crate) fn text(text: String) -> String {
    MASKS.read().unwrap_or_else(PoisonError::into_inner).text(text)
}

/// The JSON value with secrets masked in strings and keys.
pub(crate) fn json(value: Value) -> Value {
    match value {
        Value::String(string) => Value::String(text(string)),
        Value::Array(items) => Value::Array(items.into_iter().map(json).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (text(key), json(value))).collect())
        }
        other => other,
    }
}

/// The values to mask: those of all variables except ordinary values ([`is_ordinary_value`]), paths that
/// exist, and [`ORDINARY_VARIABLES`].
pub(crate) fn secret_variables(expanded: &BTreeMap<String, String>) -> Vec<Secret> {
    let is_path = |value: &str| Path::new(value).is_absolute() && Path::new(value).exists();
    let is_secret = |(name, value): &(&String, &String)| {
        !ORDINARY_VARIABLES.contains(&name.as_str())
            && !name.starts_with("XDG_")
            && !is_ordinary_value(value)
            && !is_path(value)
    };
    expanded.iter().filter(is_secret).map(|(_, value)| Secret::new(value)).collect()
}

/// A connector whose errors are redacted, because the store keeps them and agents read them.
pub(crate) struct MaskedConnector {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) redactor: Redactor,
}

impl MaskedConnector {
    fn masked(&self, error: SourceError) -> SourceError {
        match error {
            SourceError::Unavailable(reason) => SourceError::Unavailable(self.redactor.text(reason)),
            other => other,
        }
    }
}

#[async_trait]
impl Connector for MaskedConnector {
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        self.connector.pull(cursor, sink).await.map_err(|error| self.masked(error))
    }

    async fn check(&self) -> Result<(), SourceError> {
        self.connector.check().await.map_err(|error| self.masked(error))
    }

    fn admits_secret(&self, source_id: &str) -> bool {
        self.connector.admits_secret(source_id)
    }

    fn watcher(&self) -> Option<Watcher> {
        self.connector.watcher()
    }
}

/// The log's writer: stderr with secrets masked.
#[derive(Clone, Copy)]
pub(crate) struct MaskedStderr;

/// The writer of one log event. The subscriber writes each event in one call, so no secret is split.
pub(crate) struct MaskedEvent;

impl<'a> MakeWriter<'a> for MaskedStderr {
    type Writer = MaskedEvent;

    fn make_writer(&'a self) -> MaskedEvent {
        MaskedEvent
    }
}

impl Write for MaskedEvent {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let shown = text(String::from_utf8_lossy(event).into_owned());
        progress::suspend_bar(|| io::stderr().lock().write_all(shown.as_bytes()))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_first_configurations_stay_masked_however_often_a_file_changes() {
        let mut masks = SecretMasks(Vec::new());
        masks.redactor(vec![Secret::new("the-first-secret")]).learn(&Secret::new("a-token-of-later"));
        for number in 0..100 {
            masks.redactor(vec![Secret::new(format!("secret-number-{number}"))]);
        }
        let shown = masks.text("the-first-secret a-token-of-later secret-number-99".to_owned());
        assert!(!shown.contains("secret-") && !shown.contains("token"), "{shown}");
        assert_eq!(masks.0.len(), SETS_MAX);
    }

    #[test]
    fn values_of_variables_are_secrets_but_for_ordinary_ones() {
        let expanded = [
            ("API_TOKEN", "hunter2hunter2"),
            ("MODE", "production"),
            ("PORT", "8080"),
            ("USER", "a-long-user-name"),
            ("XDG_DATA_HOME", "not-there-at-all"),
            ("NOTES", "/"),
            ("DOCS", env!("CARGO_MANIFEST_DIR")),
            ("GONE", "/there/is/no/such/file"),
        ];
        let expanded = expanded.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let secrets: Vec<String> =
            secret_variables(&expanded).iter().map(|secret| secret.expose().to_owned()).collect();
        assert_eq!(secrets, ["hunter2hunter2", "/there/is/no/such/file"]);
    }
}
