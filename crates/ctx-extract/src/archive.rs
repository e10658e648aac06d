//! ZIP archives, unpacked with a limit on the total size (zip bombs).

use super::bounds::Bounds;
use super::{ExtractError, failed, text};
use std::io::{Cursor, Read};
use zip::ZipArchive;
use zip::result::ZipError;

/// Bytes unpacked between two checks of the limits.
const STEP_BYTES: usize = 64 << 10;

/// An archive, and the number of bytes unpacked from it.
pub(super) struct Archive<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    bounds: &'a Bounds,
    unpacked: usize,
}

impl<'a> Archive<'a> {
    pub(super) fn open(bytes: &'a [u8], bounds: &'a Bounds) -> Result<Self, ExtractError> {
        let archive = match ZipArchive::new(Cursor::new(bytes)) {
            Ok(archive) => archive,
            Err(error) => return failed(format!("it is damaged: {error}")),
        };
        if archive.len() > bounds.limits.members {
            return failed(format!("it holds more than {} files", bounds.limits.members));
        }
        Ok(Self { archive, bounds, unpacked: 0 })
    }

    pub(super) fn bounds(&self) -> &'a Bounds {
        self.bounds
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.archive.index_for_name(name).is_some()
    }

    /// The text of a required member; an error if it is missing.
    pub(super) fn required_text(&mut self, name: &str) -> Result<String, ExtractError> {
        match self.text(name)? {
            Some(text) => Ok(text),
            None => failed(format!("it is damaged: {name} is missing")),
        }
    }

    /// The text of a member; `None` if it is missing.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ExtractError> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        match text::decode(&bytes, None) {
            Ok(text) => Ok(Some(text)),
            Err(_) => failed(format!("it is damaged: {name} is not UTF-8")),
        }
    }

    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, ExtractError> {
        let damaged = |error: &dyn std::fmt::Display| failed(format!("it is damaged: {name}: {error}"));
        let mut member = match self.archive.by_name(name) {
            Ok(member) => member,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED)) => {
                return failed("it is protected by a password");
            }
            Err(error) => return damaged(&error),
        };
        // The sizes that the archive declares are not trusted.
        let mut bytes = Vec::new();
        loop {
            self.bounds.check_time()?;
            let step = match member.by_ref().take(STEP_BYTES as u64).read_to_end(&mut bytes) {
                Ok(step) => step,
                Err(error) => return damaged(&error),
            };
            self.unpacked += step;
            if self.unpacked > self.bounds.limits.unpacked_bytes {
                return failed(format!(
                    "it unpacks to more than {} bytes",
                    self.bounds.limits.unpacked_bytes
                ));
            }
            if step < STEP_BYTES {
                return Ok(Some(bytes));
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::bounds::ExtractLimits;
    use super::*;
    use std::io::Write;
    use zip::write::{SimpleFileOptions, ZipWriter};

    /// Packs members into an archive.
    pub(in super::super) fn packed(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in members {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn what_unpacks_to_too_much_is_refused_while_unpacking() {
        let bomb = packed(&[("a", &vec![b' '; 4 << 20]), ("b", &vec![b' '; 4 << 20])]);
        assert!(bomb.len() < 64 << 10);
        let bounds = Bounds::start(ExtractLimits { unpacked_bytes: 5 << 20, ..ExtractLimits::DEFAULT });
        let mut archive = Archive::open(&bomb, &bounds).unwrap();
        assert_eq!(archive.required_text("a").unwrap().len(), 4 << 20);
        let refused = archive.text("b");
        assert_eq!(refused, Err(ExtractError::Failed("it unpacks to more than 5242880 bytes".to_owned())));
        assert_eq!(archive.text("c"), Ok(None));
    }

    #[test]
    fn an_archive_with_too_many_files_is_refused() {
        let bytes = packed(&[("a", b""), ("b", b""), ("c", b"")]);
        let bounds = Bounds::start(ExtractLimits { members: 2, ..ExtractLimits::DEFAULT });
        let refused = Archive::open(&bytes, &bounds).err();
        assert_eq!(refused, Some(ExtractError::Failed("it holds more than 2 files".to_owned())));
    }
}
