//! Which names a source takes in: `include_globs` and `exclude_globs`, the same for every connector.

use globset::{Glob, GlobSet, GlobSetBuilder};
use std::path::Path;

/// Globs as they are configured, ready to match.
#[derive(Clone, Debug)]
pub(super) struct Globs {
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl Globs {
    /// The error names the key that is wrong.
    pub(super) fn new(include: &[String], exclude: &[String]) -> Result<Self, String> {
        let include = match include {
            [] => None,
            globs => Some(glob_set("include_globs", globs)?),
        };
        Ok(Self { include, exclude: glob_set("exclude_globs", exclude)? })
    }

    /// Whether something of this name, relative to the source's root, is taken in.
    pub(super) fn want(&self, relative: impl AsRef<Path>) -> bool {
        let relative = relative.as_ref();
        self.include.as_ref().is_none_or(|globs| globs.is_match(relative)) && !self.exclude.is_match(relative)
    }
}

fn glob_set(key: &str, globs: &[String]) -> Result<GlobSet, String> {
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        builder.add(Glob::new(glob).map_err(|error| format!("{key}: {error}"))?);
    }
    builder.build().map_err(|error| format!("{key}: {error}"))
}
