//! Locates the configuration files.

use std::path::{Path, PathBuf};

/// File names of a workspace's configuration, in order of preference.
pub(crate) const FILE_NAMES: [&str; 3] = ["ctx.toml", ".ctx/config.toml", "config/ctx.toml"];

/// The paths of the configuration files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigLocation {
    /// The user-level file, which has the lowest precedence; it may not exist.
    pub(crate) user: Option<PathBuf>,
    /// The workspace's file, if there is one.
    pub(crate) workspace: Option<PathBuf>,
    /// The folder that relative paths are resolved against.
    pub(crate) root: PathBuf,
    /// Whether the user named the workspace's file; otherwise it was discovered.
    pub(crate) named: bool,
}

/// Locates the files: a named one, else the nearest in the working directory and its ancestors.
pub(crate) fn locate(named: Option<&Path>, directory: &Path, user: Option<PathBuf>) -> ConfigLocation {
    let directory = &absolute(directory);
    let workspace = match named {
        Some(path) => Some(absolute(&directory.join(path))),
        None => directory.ancestors().find_map(find_file_in),
    };
    let root = workspace.as_deref().map_or_else(|| directory.to_owned(), root_of);
    ConfigLocation { user, workspace, root, named: named.is_some() }
}

/// Locates the workspace's file in exactly this folder.
pub(crate) fn locate_in(directory: &Path, user: Option<PathBuf>) -> ConfigLocation {
    let directory = absolute(directory);
    ConfigLocation { user, workspace: find_file_in(&directory), root: directory, named: false }
}

/// The path from the root of the file system, without `.`, so that one file has one name in messages and in grants.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn find_file_in(directory: &Path) -> Option<PathBuf> {
    FILE_NAMES.iter().map(|name| directory.join(name)).find(|path| path.is_file())
}

/// The folder of `ctx.toml`, or the parent of `.ctx/` or `config/`.
pub(crate) fn root_of(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new("."));
    let nested = [Path::new(".ctx/config.toml"), Path::new("config/ctx.toml")];
    match folder.parent() {
        Some(parent) if nested.iter().any(|nested| path.ends_with(nested)) => parent.to_owned(),
        _ => folder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_where_the_workspace_is() {
        assert_eq!(root_of(Path::new("/w/ctx.toml")), Path::new("/w"));
        assert_eq!(root_of(Path::new("/w/.ctx/config.toml")), Path::new("/w"));
        assert_eq!(root_of(Path::new("/w/config/ctx.toml")), Path::new("/w"));
        assert_eq!(root_of(Path::new("/w/other/mine.toml")), Path::new("/w/other"));
    }
}
