//! ctx's own files in the repository of the workspace: configuration and scripts are not documents.
//!
//! The repository is recognised without `git`: by the paths of its folders, and by the `url` of `origin`, which is
//! read from its configuration and used for nothing else.

use super::address::{GitTransport, RepositoryAddress};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum bytes read of a repository's configuration.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Scheme of a local URL.
const FILE_SCHEME: &str = "file://";

/// ctx's own files, as paths from the top of a repository.
#[derive(Debug, Default)]
pub(super) struct OwnFiles(Vec<Vec<u8>>);

impl OwnFiles {
    /// The own files in the repository at this address; none unless the workspace is in it.
    pub(super) fn find(address: &RepositoryAddress, workspace_root: &Path, own_files: &[PathBuf]) -> Self {
        let Some(checkout) =
            Checkout::containing(workspace_root).filter(|checkout| checkout.is_checkout_of(address))
        else {
            return Self::default();
        };
        let inside = own_files.iter().filter_map(|path| {
            let path = fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?);
            let parts = path.strip_prefix(&checkout.top).ok()?.components();
            let parts: Vec<&[u8]> = parts.map(|part| part.as_os_str().as_encoded_bytes()).collect();
            Some(parts.join(&b'/'))
        });
        Self(inside.collect())
    }

    /// Whether a path from the top of the repository is one of them, or below one.
    pub(super) fn contains(&self, path: &[u8]) -> bool {
        let is_below = |own: &Vec<u8>| path.strip_prefix(own.as_slice()).is_some_and(is_same_or_below);
        self.0.iter().any(is_below)
    }
}

fn is_same_or_below(rest: &[u8]) -> bool {
    rest.is_empty() || rest.starts_with(b"/")
}

/// The working tree that contains the workspace.
struct Checkout {
    top: PathBuf,
    /// The git directory, which several working trees may share.
    git_directory: PathBuf,
}

impl Checkout {
    fn containing(workspace_root: &Path) -> Option<Self> {
        let root = fs::canonicalize(workspace_root).ok()?;
        let top = root.ancestors().find(|folder| fs::symlink_metadata(folder.join(".git")).is_ok())?;
        Some(Self { top: top.to_owned(), git_directory: git_directory(&top.join(".git"))? })
    }

    fn is_checkout_of(&self, address: &RepositoryAddress) -> bool {
        let is_here =
            address.transport == GitTransport::Local && self.is_at(Path::new(local_path(&address.url)));
        is_here || self.origin().is_some_and(|origin| self.is_same_remote(&origin, &address.url))
    }

    /// Whether the repository or its working tree is at this path, or the repository is below it as `.git`.
    fn is_at(&self, path: &Path) -> bool {
        let is_repository =
            |path: PathBuf| fs::canonicalize(path).is_ok_and(|path| path == self.git_directory);
        is_repository(path.to_owned()) || is_repository(path.join(".git")) || {
            fs::canonicalize(path).is_ok_and(|path| path == self.top)
        }
    }

    fn is_same_remote(&self, origin: &str, url: &str) -> bool {
        match (host_and_path(origin), host_and_path(url)) {
            (Some(origin), Some(url)) => origin.eq_ignore_ascii_case(&url),
            (None, None) => {
                let canonical = |path: &str| fs::canonicalize(self.top.join(local_path(path))).ok();
                canonical(origin).is_some_and(|origin| canonical(url) == Some(origin))
            }
            _ => false,
        }
    }

    /// The `url` of `[remote "origin"]`.
    fn origin(&self) -> Option<String> {
        let mut text = Vec::new();
        let config = File::open(self.git_directory.join("config")).ok()?;
        config.take(CONFIG_BYTES_MAX).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let mut is_origin = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                is_origin = line.trim_end_matches(']').trim_start_matches('[').trim() == "remote \"origin\"";
            } else if is_origin
                && let Some((key, value)) = line.split_once('=')
                && key.trim().eq_ignore_ascii_case("url")
            {
                return Some(value.trim().trim_matches('"').to_owned());
            }
        }
        None
    }
}

/// The git directory of a `.git`: the folder itself, or the one that a file names.
fn git_directory(git: &Path) -> Option<PathBuf> {
    if git.is_dir() {
        return fs::canonicalize(git).ok();
    }
    let read_pointer = |file: &Path| {
        let mut text = String::new();
        File::open(file).ok()?.take(CONFIG_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text.trim().trim_start_matches("gitdir:").trim().to_owned())
    };
    let folder = git.parent()?.join(read_pointer(git)?);
    let shared = read_pointer(&folder.join("commondir")).map(|shared| folder.join(shared));
    fs::canonicalize(shared.unwrap_or(folder)).ok()
}

/// The path of a local URL.
fn local_path(url: &str) -> &str {
    url.strip_prefix(FILE_SCHEME).unwrap_or(url)
}

/// Host and path of a remote URL in any form: `https://host/path.git`, `git@host:path`. `None` for a path.
fn host_and_path(url: &str) -> Option<String> {
    if url.starts_with(FILE_SCHEME) {
        return None;
    }
    let (authority, path) = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?,
        None => url.split_once(':').filter(|(host, _)| !host.contains('/') && host.len() > 1)?,
    };
    let host = authority.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    Some(format!("{host}/{}", path.strip_suffix(".git").unwrap_or(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_remote_url_are_equal() {
        let same = Some("github.com/acme/docs".to_owned());
        for url in [
            "https://github.com/acme/docs.git",
            "https://x-access-token:t0ken@github.com/acme/docs",
            "git@github.com:acme/docs.git",
            "ssh://git@github.com:22/acme/docs/",
        ] {
            assert_eq!(host_and_path(url), same, "{url}");
        }
        for path in ["../mirror.git", "/srv/docs", "file:///srv/docs", "./a:b", "C:\\docs"] {
            assert_eq!(host_and_path(path), None, "{path}");
        }
    }
}
