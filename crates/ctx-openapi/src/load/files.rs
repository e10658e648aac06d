//! Description files on disk, confined to one folder.

use crate::document::{Fetch, TEXT_BYTES_MAX, Unreadable};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The files in the folder of a description.
pub(super) struct Files {
    /// Canonical: no symbolic links.
    folder: PathBuf,
}

impl Files {
    /// The folder of this file, and the file's name in it.
    pub(super) fn beside(path: &Path) -> Result<(Self, String), String> {
        let told = |error: std::io::Error| told(path, &error);
        // A symbolic link to a file elsewhere is the user's own: its references are resolved in the folder of
        // its target.
        let path = fs::canonicalize(path).map_err(told)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(folder), Some(name)) = (path.parent(), name) else {
            return Err("it is not a file".to_owned());
        };
        Ok((Self { folder: folder.to_owned() }, name.to_owned()))
    }
}

impl Fetch for Files {
    fn fetch(&self, address: &str) -> Result<String, String> {
        let path = self.folder.join(address);
        let told = |error: std::io::Error| told(&path, &error);
        // A symbolic link inside the folder may lead outside.
        let real = fs::canonicalize(&path).map_err(told)?;
        if !real.starts_with(&self.folder) {
            return Err("is outside of the description's directory".to_owned());
        }
        let about = fs::metadata(&real).map_err(told)?;
        if !about.is_file() {
            return Err("it is not a file".to_owned());
        }
        let mut bytes = Vec::with_capacity(about.len().min(TEXT_BYTES_MAX as u64) as usize);
        let bound = TEXT_BYTES_MAX as u64 + 1;
        File::open(&real).and_then(|file| file.take(bound).read_to_end(&mut bytes)).map_err(told)?;
        text(bytes)
    }
}

/// An I/O error with the file's name instead of its path, which callers of functions must not learn.
fn told(path: &Path, error: &std::io::Error) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).display();
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no file {name}"),
        _ => format!("{name} cannot be read: {error}"),
    }
}

/// Bytes as text, up to [`TEXT_BYTES_MAX`]; invalid UTF-8 is replaced.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(Unreadable::TooLarge.to_string());
    }
    let replaced = |error: std::string::FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
    Ok(String::from_utf8(bytes).unwrap_or_else(replaced))
}
