//! Files (mode 0600) and folders (mode 0700) that only the user can access, whatever the umask: indexed content may be
//! private.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a folder and its missing parents with mode 0700. An existing folder keeps its mode.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Creates an empty file with mode 0600, and its folder. An existing file keeps its content and loses the permissions
/// of group and others.
pub fn create_file(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), create_folder)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            restrict(path);
            Ok(())
        }
        opened => opened.map(drop),
    }
}

/// Removes group and other permissions of the files in a folder, for files that a library has created.
pub fn restrict_files(folder: &Path) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.for_each(|entry| restrict(&entry.path()));
}

/// Removes group and other permissions (chmod). Best effort: the file may belong to another user.
#[cfg(unix)]
fn restrict(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 && fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700)).is_err() {
        tracing::debug!("cannot remove other users' access to {}", path.display());
    }
}

#[cfg(not(unix))]
fn restrict(_: &Path) {}
