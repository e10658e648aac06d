//! `allow_hosts`: the hosts that a script may contact with `http`.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use url::Url;

/// Globs that are matched against `host` and against `host:port`.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedHosts {
    globs: Option<GlobSet>,
}

impl AllowedHosts {
    /// Compiles the globs; without any, every host is allowed.
    pub(crate) fn new(globs: &[String]) -> Result<Self, globset::Error> {
        if globs.is_empty() {
            return Ok(Self::default());
        }
        let mut builder = GlobSetBuilder::new();
        for glob in globs {
            builder.add(glob_of(glob)?);
        }
        Ok(Self { globs: Some(builder.build()?) })
    }

    /// Whether a URL's host is allowed.
    pub(super) fn allows(&self, url: &Url) -> bool {
        let Some(globs) = &self.globs else { return true };
        let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        let port = url.port_or_known_default().unwrap_or_default();
        globs.is_match(&host) || globs.is_match(format!("{host}:{port}"))
    }
}

fn glob_of(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob).case_insensitive(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(globs: &[&str], url: &str) -> bool {
        let globs: Vec<String> = globs.iter().map(ToString::to_string).collect();
        AllowedHosts::new(&globs).unwrap().allows(&Url::parse(url).unwrap())
    }

    #[test]
    fn hosts_are_allowed_by_name_by_glob_and_by_port() {
        assert!(is_allowed(&[], "https://anything.example/"));
        assert!(is_allowed(&["api.example.com"], "https://API.example.com./x"));
        assert!(is_allowed(&["*.example.com"], "https://a.b.example.com/"));
        assert!(!is_allowed(&["*.example.com"], "https://example.com/"));
        assert!(!is_allowed(&["*.example.com"], "https://example.com.evil.test/"));
        assert!(!is_allowed(&["*.example.com"], "https://evil.test/?x=.example.com"));
        assert!(!is_allowed(&["*.example.com"], "https://a.example.com@evil.test/"));
        assert!(is_allowed(&["localhost:8080"], "http://localhost:8080/"));
        assert!(!is_allowed(&["localhost:8080"], "http://localhost:8081/"));
        assert!(is_allowed(&["127.0.0.1"], "http://127.1/"));
    }
}
