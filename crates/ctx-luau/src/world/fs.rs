//! `fs`: read access to the script's own directory tree. Symbolic links out of it and files that hold secrets are
//! refused.

use super::{BAD_REQUEST, FORBIDDEN, HostResult};
use crate::engine::HostError;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use ctx_core::{has_secret_name, is_private_key};
use globset::{GlobBuilder, GlobMatcher};
use serde_json::{Value, json};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

/// Maximum number of files in one listing.
const NAMES_MAX: usize = 10_000;
/// Maximum number of directories that one listing reads.
const DIRECTORIES_MAX: usize = 10_000;
/// Maximum size of a glob pattern.
const GLOB_BYTES_MAX: usize = 1_000;
const FAILED: &str = "fs";
const NOT_FOUND: &str = "not_found";
const TOO_LARGE: &str = "too_large";

/// Reads one file as bytes.
pub(super) async fn read(directory: Option<PathBuf>, path: String, bytes_max: usize) -> HostResult {
    with_directory(directory, move |root| {
        refuse_secret(root, "fs.read", &path)?;
        let content =
            read_file(root, &path, bytes_max).map_err(|error| io_refusal("fs.read", &path, &error))?;
        if is_private_key(&content) {
            return Err(secret_refusal("fs.read", &path));
        }
        if content.len() > bytes_max {
            let limit = bytes_max as f64 / f64::from(1 << 20);
            return Err(HostError::new(TOO_LARGE, format!("fs.read: `{path}` is larger than {limit} MiB")));
        }
        Ok((Value::Null, content))
    })
    .await
}

/// Lists the files of a directory that match a glob, as paths for `fs.read`. Recursive only for a glob with
/// `/` or `**`.
pub(super) async fn list(directory: Option<PathBuf>, dir: String, glob: Option<String>) -> HostResult {
    let matcher = match &glob {
        None => None,
        Some(glob) if glob.len() > GLOB_BYTES_MAX => {
            return Err(HostError::new(
                BAD_REQUEST,
                format!("fs.list: the glob is longer than {GLOB_BYTES_MAX} bytes"),
            ));
        }
        Some(glob) => Some(
            GlobBuilder::new(glob)
                .literal_separator(true)
                .build()
                .map_err(|error| HostError::new(BAD_REQUEST, format!("fs.list: invalid glob: {error}")))?,
        ),
    };
    let matcher = matcher.map(|glob| glob.compile_matcher());
    let recursive = glob.is_some_and(|glob| glob.contains('/') || glob.contains("**"));
    with_directory(directory, move |root| {
        refuse_secret(root, "fs.list", &dir)?;
        let names = list_files(root, &dir, matcher.as_ref(), recursive);
        Ok((json!(names.map_err(|error| io_refusal("fs.list", &dir, &error))?), Vec::new()))
    })
    .await
}

/// Opens the directory and runs `work` on the blocking thread pool.
async fn with_directory(
    directory: Option<PathBuf>,
    work: impl FnOnce(&Dir) -> HostResult + Send + 'static,
) -> HostResult {
    let Some(directory) = directory else {
        return Err(HostError::new(FORBIDDEN, "fs is not available here"));
    };
    let work = move || match Dir::open_ambient_dir(directory, ambient_authority()) {
        Ok(root) => work(&root),
        Err(error) => {
            Err(HostError::new(FAILED, format!("fs: the script's directory cannot be read: {error}")))
        }
    };
    let failed = |_| Err(HostError::new(FAILED, "fs: the directory cannot be read"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(failed)
}

fn read_file(root: &Dir, path: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
    let path = normalize(path)?;
    // Checked before opening: to open a FIFO would block until somebody writes to it.
    if !root.metadata(&path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut content = Vec::new();
    root.open(&path)?.take(bytes_max as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}

fn list_files(
    root: &Dir,
    dir: &str,
    matcher: Option<&GlobMatcher>,
    recursive: bool,
) -> io::Result<Vec<String>> {
    let top = normalize(dir)?;
    let mut names = Vec::new();
    let mut pending = vec![PathBuf::new()];
    let mut directories_read = 0;
    while let Some(directory) = pending.pop() {
        directories_read += 1;
        for entry in root.read_dir(top.join(&directory))? {
            let entry = entry?;
            let relative = directory.join(entry.file_name());
            let path_from_root = top.join(&relative);
            let kind = entry.file_type()?;
            if has_secret_name(&relative) || kind.is_symlink() && leads_to_secret(root, &path_from_root) {
                continue;
            }
            if recursive && kind.is_dir() {
                pending.push(relative);
                continue;
            }
            // A symbolic link counts as its target, unless the target is outside.
            let is_file = root.metadata(&path_from_root).is_ok_and(|metadata| metadata.is_file());
            if is_file && matcher.is_none_or(|matcher| matcher.is_match(&relative)) {
                names.extend(script_path(&path_from_root));
            }
            if names.len() > NAMES_MAX || pending.len() + directories_read > DIRECTORIES_MAX {
                return Err(io::Error::other(format!(
                    "there are more than {NAMES_MAX} files or directories"
                )));
            }
        }
    }
    names.sort();
    Ok(names)
}

fn refuse_secret(root: &Dir, function: &str, path: &str) -> Result<(), HostError> {
    match normalize(path) {
        Ok(normalized) if leads_to_secret(root, &normalized) => Err(secret_refusal(function, path)),
        // Paths outside of the directory are refused later, with their own error.
        _ => Ok(()),
    }
}

/// Whether a path is secret by its own name, or by that of its symbolic link target.
fn leads_to_secret(root: &Dir, path: &Path) -> bool {
    has_secret_name(path) || root.canonicalize(path).is_ok_and(|target| has_secret_name(&target))
}

fn secret_refusal(function: &str, path: &str) -> HostError {
    let message = format!(
        "{function}: `{path}` is a secret file, which scripts may not read; use context.config or env.get for secrets"
    );
    HostError::new(FORBIDDEN, message)
}

/// The path without `.` and `..`; an error if it leads outside.
fn normalize(path: &str) -> io::Result<PathBuf> {
    let outside = || io::Error::new(io::ErrorKind::PermissionDenied, "outside");
    let mut normalized = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => normalized.push(name),
            Component::ParentDir if normalized.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    Ok(if normalized.as_os_str().is_empty() { PathBuf::from(".") } else { normalized })
}

/// A path as scripts write it; `None` if it is not UTF-8.
fn script_path(path: &Path) -> Option<String> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    let parts: Option<Vec<&str>> = parts.map(|part| part.as_os_str().to_str()).collect();
    parts.map(|parts| parts.join("/"))
}

fn io_refusal(function: &str, path: &str, error: &io::Error) -> HostError {
    // Only errors of the operating system have a number; a path that leads outside is refused without one.
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        let message = format!("{function}: `{path}` is outside of the script's directory");
        return HostError::new(FORBIDDEN, message);
    }
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { FAILED };
    HostError::new(code, format!("{function}: `{path}` cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_climb_out_are_refused() {
        for path in ["..", "../x", "a/../../x", "/etc/passwd", "./../x"] {
            assert!(normalize(path).is_err(), "{path}");
        }
        for (path, normalized) in [("a/b", "a/b"), ("./a", "a"), ("a/../b", "b"), (".", "."), ("", ".")] {
            assert_eq!(normalize(path).unwrap(), Path::new(normalized), "{path}");
        }
    }
}
