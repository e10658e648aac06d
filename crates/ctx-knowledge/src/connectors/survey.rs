//! Survey of a folder: counts what a filesystem source would read, without reading it.

use super::OpenOptions;
use super::filesystem::open_filesystem;
use serde_json::Value;

/// Number and size of the files that would be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderSurvey {
    /// Files that would be read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files and folders visited.
    pub entries: u64,
    /// Whether counting stopped at a limit.
    pub is_truncated: bool,
}

/// Limits of a survey: counting stops when one is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyLimits {
    /// Files that would be read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files and folders to visit.
    pub entries: u64,
}

impl FolderSurvey {
    /// Counts what a filesystem source with these settings would read, in addition to earlier counts. The error names
    /// the wrong setting.
    pub fn add_folder(
        &mut self,
        settings: &Value,
        options: OpenOptions<'_>,
        limits: SurveyLimits,
    ) -> Result<(), String> {
        let connector = open_filesystem(settings, options)?;
        for bytes in connector.sizes() {
            self.entries += 1;
            self.files += u64::from(bytes.is_some());
            self.bytes += bytes.unwrap_or(0);
            self.is_truncated =
                self.files > limits.files || self.bytes > limits.bytes || self.entries > limits.entries;
            if self.is_truncated {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn counting_follows_globs_and_ignore_files_and_stops_at_each_limit() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.md", "12345"),
            ("sub/b.md", "12345"),
            ("sub/large.md", "12345678901"),
            ("c.png", "1"),
            (".env", "1"),
            ("server.pem", "1"),
            ("ignored/d.md", "1"),
            (".gitignore", "ignored/"),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let options = OpenOptions {
            workspace_root: folder.path(),
            cache: folder.path(),
            environment: &|_| None,
            document_bytes_max: 10,
            own_files: &[],
        };
        let survey = |files, bytes, entries| {
            let mut survey = FolderSurvey::default();
            let limits = SurveyLimits { files, bytes, entries };
            let settings = json!({"root": ".", "include_globs": ["**/*.{md,pem}", "**/.env"]});
            survey.add_folder(&settings, options, limits).unwrap();
            survey
        };
        let whole = survey(2, 10, 100);
        assert_eq!((whole.files, whole.bytes, whole.is_truncated), (2, 10, false));
        assert_eq!((survey(1, 10, 100).files, survey(1, 10, 100).is_truncated), (2, true));
        assert!(survey(2, 9, 100).is_truncated && survey(2, 10, whole.entries - 1).is_truncated);
        assert!(!survey(2, 10, whole.entries).is_truncated);
        assert!(
            FolderSurvey::default()
                .add_folder(&json!({}), options, SurveyLimits { files: 1, bytes: 1, entries: 1 })
                .is_err()
        );
    }
}
