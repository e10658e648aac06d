//! Selects files, the same for every connector: `include_globs`, `exclude_globs`, and neither hidden nor secret files
//! unless `include_sensitive_globs` names them.

use ctx_core::{is_example_environment, is_secret_file};
use globset::{Glob, GlobSet, GlobSetBuilder};
use std::path::{Component, Path};

/// The compiled globs of a source.
#[derive(Clone, Debug)]
pub(super) struct Globs {
    include: Option<GlobSet>,
    exclude: GlobSet,
    secret_files: GlobSet,
    /// Hidden names that `include_sensitive_globs` spells out, like the `.aws` of `.aws/credentials`.
    hidden_names: GlobSet,
}

/// Globs as configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct GlobSettings<'a> {
    pub(super) include: &'a [String],
    pub(super) exclude: &'a [String],
    pub(super) include_sensitive_globs: &'a [String],
}

/// Whether a source reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    Read,
    /// Left out because it usually holds secrets; the globs would select it.
    Secret,
    Skip,
}

impl Globs {
    /// Compiles globs; the error names the wrong setting.
    pub(super) fn new(settings: GlobSettings<'_>) -> Result<Self, String> {
        let include = match settings.include {
            [] => None,
            globs => Some(glob_set("include_globs", globs)?),
        };
        let secret_files = settings.include_sensitive_globs;
        let parts = secret_files.iter().flat_map(|glob| glob.split('/'));
        let hidden_names: Vec<String> =
            parts.filter(|part| part.starts_with('.')).map(str::to_owned).collect();
        Ok(Self {
            include,
            exclude: glob_set("exclude_globs", settings.exclude)?,
            secret_files: glob_set("include_sensitive_globs", secret_files)?,
            hidden_names: glob_set("include_sensitive_globs", &hidden_names)?,
        })
    }

    /// Decides about the file with this name, relative to the source's root.
    pub(super) fn select(&self, relative: impl AsRef<Path>) -> Selection {
        let relative = relative.as_ref();
        if self.exclude.is_match(relative) {
            return Selection::Skip;
        }
        let is_included = self.include.as_ref().is_none_or(|globs| globs.is_match(relative));
        if self.is_excluded_secret(relative) {
            return if is_included { Selection::Secret } else { Selection::Skip };
        }
        if is_secret_file(relative) {
            return Selection::Read;
        }
        let is_hidden = match is_example_environment(relative) {
            true => relative.parent().is_some_and(|folder| has_hidden_name(folder, |_| false)),
            false => has_hidden_name(relative, |_| false),
        };
        if is_included && !is_hidden { Selection::Read } else { Selection::Skip }
    }

    /// Whether a file usually holds secrets and is not named by `include_sensitive_globs`.
    pub(super) fn is_excluded_secret(&self, relative: &Path) -> bool {
        is_secret_file(relative) && !self.admits_secret(relative)
    }

    /// Whether `include_sensitive_globs` names a file.
    pub(super) fn admits_secret(&self, relative: impl AsRef<Path>) -> bool {
        let relative = relative.as_ref();
        self.secret_files.is_match(relative) && !self.hides_folder(relative)
    }

    /// Whether a folder is hidden: a part of its path begins with a dot, and `include_sensitive_globs` does not spell
    /// that part out.
    pub(super) fn hides_folder(&self, folder: &Path) -> bool {
        has_hidden_name(folder, |name| self.hidden_names.is_match(name))
    }
}

/// Whether a part of the path begins with a dot and is not an exception. In every source, such files and folders are
/// for programs.
fn has_hidden_name(path: &Path, is_exception: impl Fn(&Path) -> bool) -> bool {
    path.components().any(|part| match part {
        Component::Normal(name) => {
            name.as_encoded_bytes().starts_with(b".") && !is_exception(Path::new(name))
        }
        _ => false,
    })
}

fn glob_set(key: &str, globs: &[String]) -> Result<GlobSet, String> {
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        builder.add(Glob::new(glob).map_err(|error| format!("{key}: {error}"))?);
    }
    builder.build().map_err(|error| format!("{key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(include: &[&str], exclude: &[&str], include_sensitive_globs: &[&str]) -> Globs {
        let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        let (include, exclude, secret) = (owned(include), owned(exclude), owned(include_sensitive_globs));
        let settings =
            GlobSettings { include: &include, exclude: &exclude, include_sensitive_globs: &secret };
        Globs::new(settings).unwrap()
    }

    #[test]
    fn secret_and_hidden_files_are_left_out_whatever_the_globs_say() {
        for globs in [globs(&[], &[], &[]), globs(&["**/*", "**/.*", ".aws/**"], &[], &[])] {
            for (name, selection) in [
                ("a.md", Selection::Read),
                ("app/.env.example", Selection::Read),
                (".config/.env.example", Selection::Skip),
                (".editorconfig", Selection::Skip),
                (".github/ci.md", Selection::Skip),
                ("app/.env", Selection::Secret),
                ("certs/server.pem", Selection::Secret),
                (".aws/credentials", Selection::Secret),
                ("credentials/rotation.md", Selection::Read),
            ] {
                assert_eq!(globs.select(name), selection, "{name}");
            }
        }
        assert_eq!(globs(&["**/*.md"], &[], &[]).select("server.pem"), Selection::Skip);
        assert_eq!(globs(&[], &["certs/**"], &["**"]).select("certs/server.pem"), Selection::Skip);
    }

    #[test]
    fn secret_files_that_are_named_are_read_and_no_others() {
        let globs = globs(&["**/*.md"], &[], &["certs/*.pem", ".aws/credentials", "*/.env"]);
        for (name, selection) in [
            ("certs/server.pem", Selection::Read),
            (".aws/credentials", Selection::Read),
            ("app/.env", Selection::Read),
            ("other/server.pem", Selection::Skip),
            (".aws/config", Selection::Skip),
            (".env/a.md", Selection::Skip),
            (".kube/config", Selection::Skip),
            ("certs/readme.txt", Selection::Skip),
        ] {
            assert_eq!(globs.select(name), selection, "{name}");
        }
        assert!(!globs.hides_folder(Path::new(".aws")) && globs.hides_folder(Path::new(".kube")));
    }
}
