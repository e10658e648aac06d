//! Allow-list of the user's own git configuration: credential helpers, proxies, TLS, ssh and `insteadOf` rewrites.
//! Every other setting is fixed by [`super::program`]; configuration inside a repository is never read.

use super::program::{GitError, base_command, run_local};
use std::fs;
use std::io;
use std::path::PathBuf;

/// Allowed keys, in lower case: whole names, and prefixes, which end with a dot.
const ALLOWED_KEYS: &[&str] = &["core.sshcommand", "credential.", "http.", "ssh.variant"];
/// Denied suffixes of keys under an allowed prefix: settings that prompt, persist cookies, or bypass the checked
/// addresses.
const DENIED_SUFFIXES: &[&str] =
    &[".interactive", ".cookiefile", ".savecookies", ".curloptresolve", ".followredirects"];
/// Maximum number of settings that are read.
const SETTINGS_MAX: usize = 10_000;

/// Allowed settings of the user's and the system's files, in git's order: later ones override or extend earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UserConfig {
    pub(super) settings: Vec<(String, String)>,
    /// Values of `safe.directory`: repositories of other users that git may read.
    safe_directories: Vec<String>,
}

impl UserConfig {
    /// Runs `git config --list` outside any repository. If git fails, the result is empty.
    pub(super) async fn read() -> Result<Self, GitError> {
        let mut command = base_command(["config", "--list", "-z", "--includes"]);
        // No repository there, so git reads only the user's and the system's files.
        command.env("GIT_DIR", NO_REPOSITORY).env_remove("GIT_CONFIG_COUNT");
        match run_local(command).await {
            Ok(listing) => Ok(Self::parse(&listing)),
            Err(GitError::Failed(_)) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn parse(listing: &[u8]) -> Self {
        let entries = listing.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
        // A key without a value means `true`.
        let pairs = entries.map(|entry| entry.split_once('\n').unwrap_or((entry, "true")));
        let mut config = Self::default();
        for (key, value) in pairs.take(SETTINGS_MAX) {
            if key.eq_ignore_ascii_case("safe.directory") {
                config.safe_directories.push(value.to_owned());
            } else if is_allowed(key) {
                config.settings.push((key.to_owned(), value.to_owned()));
            }
        }
        config
    }

    /// Writes the replacement for the user's global config, if `safe.directory` is set.
    pub(super) fn write_global_config(&self, path: PathBuf) -> io::Result<Option<PathBuf>> {
        if self.safe_directories.is_empty() {
            return Ok(None);
        }
        let quoted = |value: &String| {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("\tdirectory = \"{escaped}\"\n")
        };
        let text: String = self.safe_directories.iter().map(quoted).collect();
        ctx_store::create_file(&path)?;
        fs::write(&path, format!("[safe]\n{text}"))?;
        Ok(Some(path))
    }

    /// Whether the user has set `http.proxy`, for all URLs or for some.
    pub(super) fn has_proxy(&self) -> bool {
        self.settings.iter().any(|(key, value)| {
            let key = key.to_ascii_lowercase();
            key.starts_with("http.") && key.ends_with(".proxy") && !value.is_empty()
        })
    }

    /// Whether the user has set `core.sshCommand`, which then takes precedence over ours.
    pub(super) fn has_ssh_command(&self) -> bool {
        self.settings.iter().any(|(key, _)| key.eq_ignore_ascii_case("core.sshcommand"))
    }
}

/// A path that cannot hold a repository.
const NO_REPOSITORY: &str = "/dev/null";

fn is_allowed(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_rewrite = key.starts_with("url.") && key.ends_with(".insteadof");
    let allowed = |name: &str| if name.ends_with('.') { key.starts_with(name) } else { key == name };
    (is_rewrite || ALLOWED_KEYS.iter().any(|name| allowed(name)))
        && !DENIED_SUFFIXES.iter().any(|end| key.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_a_fetch_needs_are_allowed() {
        let listing = b"user.name\nx\0credential.helper\nstore\0credential.https://h.helper\n!f() { :; }\0\
            core.sshCommand\nssh -i key\0core.fsmonitor\nevil\0core.hooksPath\nevil\0core.gitProxy\nevil\0\
            remote.ctx.uploadpack\nevil\0protocol.ext.allow\nalways\0include.path\nx\0core.pager\nevil\0\
            filter.x.smudge\nevil\0http.proxy\nhttp://p\0http.cookieFile\nx\0credential.interactive\ntrue\0\
            url.https://a/.insteadOf\nb:\0url.x.pushInsteadOf\ny\0http.sslVerify\0alias.fetch\n!evil\0";
        let UserConfig { settings, .. } = UserConfig::parse(listing);
        let keys: Vec<&str> = settings.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "credential.helper",
                "credential.https://h.helper",
                "core.sshCommand",
                "http.proxy",
                "url.https://a/.insteadOf",
                "http.sslVerify",
            ]
        );
        assert_eq!(settings[5].1, "true");
        assert!(UserConfig::parse(listing).has_ssh_command());
        assert!(UserConfig::parse(listing).has_proxy());
        assert!(UserConfig::parse(b"http.https://h/.proxy\nhttp://p\0").has_proxy());
        assert!(!UserConfig::parse(b"http.proxy\n\0http.proxyAuthMethod\nbasic\0").has_proxy());
    }
}
