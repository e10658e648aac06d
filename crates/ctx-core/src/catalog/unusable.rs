//! Providers that are configured but unusable, wholly or in part: those of an untrusted workspace.

use super::{Catalog, CatalogBuilder};
use crate::Identifier;

impl CatalogBuilder {
    /// Adds a provider that is configured but unusable, wholly or in part, with the reason. Calls of its tools fail
    /// with that reason instead of `not found`.
    #[must_use]
    pub fn unusable_provider(mut self, provider: Identifier, reason: String) -> Self {
        self.left_out.insert(provider, reason);
        self
    }
}

impl Catalog {
    /// Providers that are configured but unusable, wholly or in part, each with the reason.
    pub fn unusable_providers(&self) -> impl Iterator<Item = (&Identifier, &str)> {
        self.left_out.iter().map(|(name, reason)| (name, reason.as_str()))
    }

    /// Why a provider is unusable, wholly or in part.
    pub fn unusable_reason(&self, provider: &Identifier) -> Option<&str> {
        self.left_out.get(provider).map(String::as_str)
    }

    /// Why the provider of a function, given by its full name, is unusable.
    pub fn unusable_reason_of(&self, function: &str) -> Option<&str> {
        let (provider, _) = function.split_once('.')?;
        self.unusable_reason(&Identifier::sanitize(provider))
    }
}
