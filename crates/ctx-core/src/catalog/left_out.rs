//! Providers that are configured but may not be used, or not in full: those of a workspace that is not trusted.

use super::{Catalog, CatalogBuilder};
use crate::Identifier;

impl CatalogBuilder {
    /// Names a provider that is configured but may not be used, or not in full, and says why. Whoever asks for one of its
    /// tools is told so instead of that there is none.
    #[must_use]
    pub fn left_out(mut self, provider: Identifier, reason: String) -> Self {
        self.left_out.insert(provider, reason);
        self
    }
}

impl Catalog {
    /// Providers that are configured but may not be used, or not in full, each with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (&Identifier, &str)> {
        self.left_out.iter().map(|(name, reason)| (name, reason.as_str()))
    }

    /// Why a provider, or a part of it, may not be used.
    pub fn left_out_reason(&self, provider: &Identifier) -> Option<&str> {
        self.left_out.get(provider).map(String::as_str)
    }

    /// Why the provider of a function, given by its full name, may not be used.
    pub fn left_out_reason_of(&self, function: &str) -> Option<&str> {
        let (provider, _) = function.split_once('.')?;
        self.left_out_reason(&Identifier::sanitize(provider))
    }
}
