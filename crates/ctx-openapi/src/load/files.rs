//! Description files on disk, confined to one folder.

use crate::document::{DescriptionError, Fetch, TEXT_BYTES_MAX};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The files in the folder of a description.
pub(super) struct DescriptionFolder {
    /// Canonical: no symbolic links.
    folder: PathBuf,
}

impl DescriptionFolder {
    /// The folder of this file, and the file's name in it.
    pub(super) fn of_file(path: &Path) -> Result<(Self, String), String> {
        let describe_error = |error: std::io::Error| describe_error(path, &error);
        // A symbolic link to a file elsewhere is the user's own: its references are resolved in the folder of
        // its target.
        let path = fs::canonicalize(path).map_err(describe_error)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(folder), Some(name)) = (path.parent(), name) else {
            return Err("it is not a file".to_owned());
        };
        Ok((Self { folder: folder.to_owned() }, name.to_owned()))
    }
}

impl Fetch for DescriptionFolder {
    fn fetch(&self, address: &str) -> Result<String, String> {
        let path = self.folder.join(address);
        let describe_error = |error: std::io::Error| describe_error(&path, &error);
        // A symbolic link inside the folder may lead outside.
        let real = fs::canonicalize(&path).map_err(describe_error)?;
        if !real.starts_with(&self.folder) {
            return Err("is outside of the description's directory".to_owned());
        }
        let metadata = fs::metadata(&real).map_err(describe_error)?;
        if !metadata.is_file() {
            return Err("it is not a file".to_owned());
        }
        let mut bytes = Vec::with_capacity(metadata.len().min(TEXT_BYTES_MAX as u64) as usize);
        let bound = TEXT_BYTES_MAX as u64 + 1;
        File::open(&real)
            .and_then(|file| file.take(bound).read_to_end(&mut bytes))
            .map_err(describe_error)?;
        decode_text(bytes)
    }
}

/// An I/O error with the file's name instead of its path, which callers of functions must not learn.
fn describe_error(path: &Path, error: &std::io::Error) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).display();
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no file {name}"),
        _ => format!("{name} cannot be read: {error}"),
    }
}

/// Bytes as text, up to [`TEXT_BYTES_MAX`]; invalid UTF-8 is replaced.
pub(super) fn decode_text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(DescriptionError::TooLarge.to_string());
    }
    let replaced = |error: std::string::FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
    Ok(String::from_utf8(bytes).unwrap_or_else(replaced))
}
