//! Secret values, which must not be printed or serialized.

use std::fmt;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_nothing() {
        assert_eq!(format!("{:?}", Secret::new("hunter2hunter2")), "Secret(***)");
    }
}
