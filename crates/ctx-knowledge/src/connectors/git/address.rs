//! Repository addresses: the URL for git, the URL for messages, and the web URLs of files.
//!
//! Passwords are removed from URLs here; git gets them through its environment.

use crate::connectors::names::percent_encode_path;
use ctx_core::Secret;
use percent_encoding::percent_decode_str;
use std::path::Path;

/// A parsed repository address.
#[derive(Clone, Debug)]
pub(super) struct RepositoryAddress {
    /// URL or path for git, without a password.
    pub(super) url: String,
    /// URL or path for messages and documents, without password and query.
    pub(super) display_url: String,
    pub(super) transport: GitTransport,
    pub(super) credentials: Option<HttpCredentials>,
    web: Option<WebPages>,
}

/// Transport protocol of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GitTransport {
    Http,
    Ssh,
    Git,
    Local,
}

/// Credentials for HTTP.
#[derive(Clone, Debug)]
pub(super) struct HttpCredentials {
    /// Scheme, host and port: the only origin that gets the credentials.
    pub(super) scope: String,
    pub(super) username: String,
    /// If `None`, git asks the user's credential helpers.
    pub(super) password: Option<Secret>,
}

/// The web pages of a repository.
#[derive(Clone, Debug)]
struct WebPages {
    base_url: String,
    service: HostingService,
}

/// Hosting software, each with its own form of URLs.
#[derive(Clone, Copy, Debug)]
enum HostingService {
    GitHub,
    GitLab,
    Gitea,
    Bitbucket,
}

impl RepositoryAddress {
    /// Parses the `url` of the settings.
    pub(super) fn parse(text: &str, workspace_root: &Path) -> Result<Self, String> {
        if text.is_empty() || text.starts_with('-') || text.chars().any(char::is_control) {
            return Err("url: not a repository URL or path".to_owned());
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return Self::from_url(&scheme.to_ascii_lowercase(), rest);
        }
        match text.split_once(':') {
            Some((authority, path)) if !authority.contains('/') && !is_drive_letter(authority) => {
                // `ext::…` would name a program to run.
                if path.starts_with(':') && !authority.contains('[') {
                    return Err(unknown_scheme(authority));
                }
                let host = authority.rsplit('@').next().unwrap_or_default();
                reject_option(host)?;
                let web = WebPages::detect("https", host, path);
                Ok(Self { web, ..Self::plain(text, GitTransport::Ssh) })
            }
            _ if text.starts_with('~') => Err("url: `~` is not expanded; write `${HOME}`".to_owned()),
            _ => {
                let path = workspace_root.join(text);
                let url = path.to_str().ok_or("url: the workspace's path is not UTF-8")?.to_owned();
                Ok(Self { url, ..Self::plain(text, GitTransport::Local) })
            }
        }
    }

    fn plain(text: &str, transport: GitTransport) -> Self {
        Self { url: text.to_owned(), display_url: text.to_owned(), transport, credentials: None, web: None }
    }

    fn from_url(scheme: &str, rest: &str) -> Result<Self, String> {
        let transport = match scheme {
            "https" | "http" => GitTransport::Http,
            "ssh" => GitTransport::Ssh,
            "git" => GitTransport::Git,
            "file" => return Ok(Self::plain(&format!("file://{rest}"), GitTransport::Local)),
            other => return Err(unknown_scheme(other)),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user_info, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if host.is_empty() {
            return Err("url: the host is missing".to_owned());
        }
        reject_option(host)?;
        let (username, password) =
            user_info.split_once(':').map_or((user_info, None), |(name, password)| (name, Some(password)));
        let scope = format!("{scheme}://{host}");
        // The user name of ssh is often part of the address: `git@`.
        let base = match transport {
            GitTransport::Ssh if !username.is_empty() => format!("ssh://{username}@{host}"),
            _ => scope.clone(),
        };
        let shown_path = path.split(['?', '#']).next().unwrap_or_default();
        let web = match transport {
            GitTransport::Http => WebPages::detect(scheme, host, shown_path),
            _ => WebPages::detect("https", host.split(':').next().unwrap_or_default(), shown_path),
        };
        let has_credentials = transport == GitTransport::Http && !username.is_empty();
        let credentials = has_credentials.then(|| HttpCredentials {
            scope,
            username: percent_decode(username),
            password: password.map(|password| Secret::new(percent_decode(password))),
        });
        Ok(Self {
            url: format!("{base}{path}"),
            display_url: format!("{base}{shown_path}"),
            transport,
            credentials,
            web,
        })
    }

    /// The web URL of a file of the repository.
    pub(super) fn web_url(&self, branch: &str, path: &[u8]) -> Option<String> {
        let web = self.web.as_ref()?;
        let segment = match web.service {
            HostingService::GitHub => "blob",
            HostingService::GitLab => "-/blob",
            HostingService::Gitea => "src/branch",
            HostingService::Bitbucket => "src",
        };
        let branch = percent_encode_path(branch.as_bytes());
        Some(format!("{}/{segment}/{branch}/{}", web.base_url, percent_encode_path(path)))
    }
}

impl WebPages {
    fn detect(scheme: &str, host: &str, path: &str) -> Option<Self> {
        // Hosts that serve ssh on port 443.
        let host = match host {
            "ssh.github.com" => "github.com",
            "altssh.gitlab.com" => "gitlab.com",
            "altssh.bitbucket.org" => "bitbucket.org",
            other => other,
        };
        let name = host.to_ascii_lowercase();
        let service = match name.as_str() {
            "bitbucket.org" => HostingService::Bitbucket,
            "codeberg.org" => HostingService::Gitea,
            name if name == "github.com" || name.starts_with("github.") => HostingService::GitHub,
            name if name.contains("gitlab") => HostingService::GitLab,
            name if name.contains("gitea") || name.contains("forgejo") => HostingService::Gitea,
            _ => return None,
        };
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        Some(Self { base_url: format!("{scheme}://{host}/{path}"), service })
    }
}

fn unknown_scheme(scheme: &str) -> String {
    format!("url: `{scheme}:` is not a supported scheme; use https, ssh, git, file or a path")
}

/// Rejects a host that ssh would parse as an option.
fn reject_option(host: &str) -> Result<(), String> {
    if host.starts_with('-') { Err("url: a host cannot begin with `-`".to_owned()) } else { Ok(()) }
}

fn is_drive_letter(text: &str) -> bool {
    cfg!(windows) && text.len() == 1
}

fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> RepositoryAddress {
        RepositoryAddress::parse(text, Path::new("/workspace")).unwrap()
    }

    #[test]
    fn files_have_web_urls_by_hosting_service() {
        for (url, expected) in [
            ("https://github.com/acme/docs.git", "https://github.com/acme/docs/blob/main/a%20b.md"),
            ("https://u:p@github.com/acme/docs", "https://github.com/acme/docs/blob/main/a%20b.md"),
            ("git@github.com:acme/docs.git", "https://github.com/acme/docs/blob/main/a%20b.md"),
            ("ssh://git@ssh.github.com:443/acme/docs", "https://github.com/acme/docs/blob/main/a%20b.md"),
            ("https://gitlab.com/a/b/c.git", "https://gitlab.com/a/b/c/-/blob/main/a%20b.md"),
            ("http://gitlab.acme.test:8080/a/b", "http://gitlab.acme.test:8080/a/b/-/blob/main/a%20b.md"),
            ("ssh://git@gitlab.acme.test:2222/a/b.git", "https://gitlab.acme.test/a/b/-/blob/main/a%20b.md"),
            ("https://codeberg.org/a/b/", "https://codeberg.org/a/b/src/branch/main/a%20b.md"),
            ("git@gitea.acme.test:a/b.git", "https://gitea.acme.test/a/b/src/branch/main/a%20b.md"),
            ("git@bitbucket.org:a/b.git", "https://bitbucket.org/a/b/src/main/a%20b.md"),
        ] {
            assert_eq!(parse(url).web_url("main", b"a b.md").as_deref(), Some(expected), "{url}");
        }
        for unknown in ["https://git.acme.test/a/b", "docs", "file:///srv/github.com/a", "host:a/b"] {
            assert_eq!(parse(unknown).web_url("main", b"a.md"), None, "{unknown}");
        }
        let nested = parse("git@github.com:a/b").web_url("feature/x#1", b"c.md");
        assert_eq!(nested.as_deref(), Some("https://github.com/a/b/blob/feature/x%231/c.md"));
    }

    #[test]
    fn credentials_are_removed_from_the_url() {
        let address = parse("https://jane:p%40ss@git.acme.test:8443/a/b.git?private_token=t0ken#x");
        assert_eq!(address.url, "https://git.acme.test:8443/a/b.git?private_token=t0ken#x");
        assert_eq!(address.display_url, "https://git.acme.test:8443/a/b.git");
        let credentials = address.credentials.unwrap();
        assert_eq!(
            (credentials.scope.as_str(), credentials.username.as_str()),
            ("https://git.acme.test:8443", "jane")
        );
        assert_eq!(credentials.password, Some(Secret::new("p@ss")));
        assert!(parse("https://jane@acme.test/a").credentials.unwrap().password.is_none());
        assert_eq!(parse("ssh://git:pw@acme.test/a").url, "ssh://git@acme.test/a");
        assert!(parse("git@acme.test:a").credentials.is_none());
    }

    #[test]
    fn a_percent_sign_without_two_digits_behind_it_stays() {
        for (written, decoded) in [("%41%2f%zz%+1%4", "A/%zz%+1%4"), ("%ff%", "\u{fffd}%"), ("%é1", "%é1")]
        {
            assert_eq!(percent_decode(written), decoded);
        }
    }

    #[test]
    fn paths_are_relative_to_the_workspace() {
        let address = parse("../mirror.git");
        assert_eq!(
            (address.url.as_str(), address.display_url.as_str()),
            ("/workspace/../mirror.git", "../mirror.git")
        );
        assert_eq!(address.transport, GitTransport::Local);
        assert_eq!(parse("/srv/a.git").url, "/srv/a.git");
        assert_eq!(parse("./a:b").transport, GitTransport::Local);
    }

    #[test]
    fn addresses_that_would_run_a_program_are_rejected() {
        for url in [
            "",
            "-u",
            "--upload-pack=x",
            "ext::sh -c x",
            "ext://x",
            "fd::3",
            "ssh://-oProxyCommand=x/a",
            "-h:a",
            "u@-oX:a",
            "a\nb",
            "~/a",
            "https:///a",
        ] {
            let error = RepositoryAddress::parse(url, Path::new("/workspace"))
                .map(|address| address.url)
                .unwrap_err();
            assert!(error.starts_with("url: "), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_address_shows_its_password(user in "[a-z]{1,8}", password in "[A-Z%@:]{6,12}", path in "[a-z/?#@:]{0,12}") {
            let url = format!("https://{user}:{}@acme.test/{path}", percent_encode_path(password.as_bytes()));
            let address = parse(&url);
            prop_assert!(!address.display_url.contains(&*percent_encode_path(password.as_bytes())));
            prop_assert!(!address.url.contains(&*percent_encode_path(password.as_bytes())));
            prop_assert_eq!(address.credentials.unwrap().password, Some(Secret::new(password)));
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text in any::<String>()) {
            let _ = RepositoryAddress::parse(&text, Path::new("/workspace"));
        }
    }
}
