//! The crash journal of a source: identifies documents that crash the process (an abort, the kernel's out-of-memory
//! killer).
//!
//! A file in the source's cache names the document being read, until its text is extracted and split. A document that
//! a later sync finds there is a suspect: it is read exclusively, and after a second crash it is skipped until it
//! changes. Nothing is fsynced: the file must survive the process, not the machine.

use ctx_core::{Document, DocumentContent};
use ctx_extract::EXTRACTION_VERSION;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The journal's name in the cache of its source.
const FILE_NAME: &str = "reading.json";
/// Number of crashes after which a document is skipped.
const CRASHES_MAX: u32 = 2;
/// Maximum number of suspects per source.
const SUSPECTS_MAX: usize = 100;
/// Maximum bytes read of a journal; one that ctx wrote is smaller.
const JOURNAL_BYTES_MAX: u64 = 4 << 20;
/// Warning for a skipped document.
const SKIPPED: &str = "ctx crashed twice while reading it; it is skipped until it changes";

/// One version of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DocumentVersion {
    source_id: String,
    /// BLAKE3 hash of its content, the first 32 hex digits.
    content: String,
}

/// A document that was being read when the process died, with the number of such crashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Suspect {
    #[serde(flatten)]
    version: DocumentVersion,
    /// Number of crashes.
    #[serde(rename = "ends")]
    crashes: u32,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct JournalContents {
    /// Version of ctx that wrote it; another version may have fixed the crash, so it starts afresh.
    program: String,
    /// The document being read; still set if the process died.
    reading: Option<DocumentVersion>,
    suspects: Vec<Suspect>,
}

/// Decision whether to read a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadDecision {
    Read,
    /// Read it exclusively, so that a crash is attributed to it.
    ReadExclusively,
    /// Skip it, with this warning.
    Skip(&'static str),
}

/// The crash journal of one source. The caller holds the source's lock.
pub(super) struct CrashJournal {
    path: PathBuf,
    /// Opened on the first write.
    file: Option<File>,
    contents: JournalContents,
    /// Set for a dry run.
    is_read_only: bool,
}

impl CrashJournal {
    /// Opens the journal in a source's cache and records a suspect if the last process crashed. An unreadable
    /// journal counts as empty.
    pub(super) fn open(cache: &Path, is_read_only: bool) -> Self {
        let path = cache.join(FILE_NAME);
        let mut contents = read_contents(&path).unwrap_or_default();
        let program = format!("{} {EXTRACTION_VERSION}", env!("CARGO_PKG_VERSION"));
        if contents.program != program {
            contents = JournalContents { program, ..JournalContents::default() };
        }
        let crashed_version = contents.reading.take();
        let mut journal = Self { path, file: None, contents, is_read_only };
        if let Some(version) = crashed_version {
            tracing::warn!(source_id = version.source_id, "ctx crashed while reading this document");
            journal.add_suspect(version);
            journal.write();
        }
        journal
    }

    fn add_suspect(&mut self, version: DocumentVersion) {
        let suspects = &mut self.contents.suspects;
        if let Some(suspect) = suspects.iter_mut().find(|suspect| suspect.version == version) {
            suspect.crashes = suspect.crashes.saturating_add(1);
        } else {
            // The oldest is dropped, so that a new one is always recorded.
            suspects.drain(..(suspects.len() + 1).saturating_sub(SUSPECTS_MAX));
            suspects.push(Suspect { version, crashes: 1 });
        }
    }

    /// Drops the suspects that the source no longer has, by their source id.
    pub(super) fn retain_suspects(&mut self, exists: impl Fn(&str) -> bool) {
        let before = self.contents.suspects.len();
        self.contents.suspects.retain(|suspect| exists(&suspect.version.source_id));
        if self.contents.suspects.len() != before {
            self.write();
        }
    }

    /// Decides how to treat a document.
    pub(super) fn decide(&mut self, document: &Document) -> (DocumentVersion, ReadDecision) {
        let content = match &document.content {
            DocumentContent::Bytes(bytes) => blake3::hash(bytes),
            DocumentContent::Text(text) => blake3::hash(text.as_bytes()),
        };
        let version = DocumentVersion {
            source_id: document.source_id.clone(),
            content: content.to_hex()[..32].to_owned(),
        };
        // A changed document is no longer a suspect.
        self.contents.suspects.retain(|suspect| {
            suspect.version.source_id != version.source_id || suspect.version.content == version.content
        });
        let suspect = self.contents.suspects.iter().find(|suspect| suspect.version == version);
        let decision = match suspect.map_or(0, |suspect| suspect.crashes) {
            0 => ReadDecision::Read,
            crashes if crashes < CRASHES_MAX => ReadDecision::ReadExclusively,
            _ => ReadDecision::Skip(SKIPPED),
        };
        (version, decision)
    }

    /// Records the document that is about to be read.
    pub(super) fn begin(&mut self, version: DocumentVersion) {
        self.contents.reading = Some(version);
        self.write();
    }

    /// Clears the current document. If it was read completely, it is no longer a suspect.
    pub(super) fn finish(&mut self, is_complete: bool) {
        if let Some(version) = self.contents.reading.take() {
            self.contents.suspects.retain(|suspect| !is_complete || suspect.version != version);
            self.write();
        }
    }

    /// Deletes the file if there are no suspects.
    pub(super) fn close(mut self) {
        self.contents.reading = None;
        if self.is_read_only || self.file.is_none() {
            return;
        }
        self.write();
        if self.contents.suspects.is_empty() {
            drop(self.file.take());
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Writes the journal; a failure, as on a full disk, is only logged and never stops a sync.
    fn write(&mut self) {
        if self.is_read_only {
            return;
        }
        if let Err(error) = self.try_write() {
            tracing::debug!(%error, "cannot write the crash journal");
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        let mut line = serde_json::to_vec(&self.contents)?;
        // The file is not truncated: the rest of an earlier, longer line stays after the newline and is ignored.
        line.push(b'\n');
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create(&self.path)?),
        };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&line)
    }
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        ctx_store::create_folder(folder)?;
    }
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(path)
}

fn read_contents(path: &Path) -> Option<JournalContents> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(bytes.split(|byte| *byte == b'\n').next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(source_id: &str, text: &str) -> Document {
        Document::new(source_id, DocumentContent::Text(text.to_owned()))
    }

    /// Simulates a process that crashes while it reads this document.
    fn crash_while_reading(cache: &Path, document: &Document) -> ReadDecision {
        let mut journal = CrashJournal::open(cache, false);
        let decision = begin(&mut journal, document);
        std::mem::forget(journal);
        decision
    }

    fn begin(journal: &mut CrashJournal, document: &Document) -> ReadDecision {
        let (version, decision) = journal.decide(document);
        if !matches!(decision, ReadDecision::Skip(_)) {
            journal.begin(version);
        }
        decision
    }

    #[test]
    fn a_document_that_crashes_the_process_twice_is_skipped_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        let bad = document("bad.html", "harm");
        assert_eq!(crash_while_reading(&cache, &bad), ReadDecision::Read);
        assert_eq!(crash_while_reading(&cache, &bad), ReadDecision::ReadExclusively);
        for _ in 0..3 {
            let mut journal = CrashJournal::open(&cache, false);
            assert_eq!(begin(&mut journal, &document("good.md", "fine")), ReadDecision::Read);
            journal.finish(true);
            assert_eq!(begin(&mut journal, &bad), ReadDecision::Skip(SKIPPED));
            journal.close();
        }
        let mut journal = CrashJournal::open(&cache, false);
        assert_eq!(begin(&mut journal, &document("bad.html", "no harm")), ReadDecision::Read);
        journal.finish(true);
        assert_eq!(begin(&mut journal, &bad), ReadDecision::Read, "it is another one again");
        journal.finish(true);
        journal.close();
        assert!(!cache.join(FILE_NAME).exists(), "nothing is left to remember");
    }

    #[test]
    fn a_document_that_is_read_exclusively_without_a_crash_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let unlucky = document("a-long-name-that-leaves-a-long-line.md", "fine");
        crash_while_reading(folder.path(), &unlucky);
        let mut journal = CrashJournal::open(folder.path(), false);
        assert_eq!(begin(&mut journal, &unlucky), ReadDecision::ReadExclusively);
        journal.finish(true);
        assert_eq!(crash_while_reading(folder.path(), &document("b", "fine")), ReadDecision::Read);
        let mut journal = CrashJournal::open(folder.path(), false);
        assert_eq!(begin(&mut journal, &unlucky), ReadDecision::Read, "one end long ago counts no more");
    }

    #[test]
    fn deleted_suspects_and_the_oldest_of_too_many_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let numbered = |number: usize| document(&number.to_string(), "harm");
        for number in 0..=SUSPECTS_MAX {
            crash_while_reading(folder.path(), &numbered(number));
        }
        let mut journal = CrashJournal::open(folder.path(), false);
        assert_eq!(journal.contents.suspects.len(), SUSPECTS_MAX);
        assert_eq!(journal.decide(&numbered(0)).1, ReadDecision::Read);
        assert_eq!(journal.decide(&numbered(SUSPECTS_MAX)).1, ReadDecision::ReadExclusively);
        journal.retain_suspects(|source_id| source_id == "7");
        journal.close();
        assert_eq!(CrashJournal::open(folder.path(), false).contents.suspects.len(), 1);
    }

    #[test]
    fn another_version_of_the_program_tries_again() {
        let folder = tempfile::tempdir().unwrap();
        let bad = document("bad", "harm");
        crash_while_reading(folder.path(), &bad);
        crash_while_reading(folder.path(), &bad);
        assert_eq!(begin(&mut CrashJournal::open(folder.path(), true), &bad), ReadDecision::Skip(SKIPPED));
        let path = folder.path().join(FILE_NAME);
        let older = fs::read_to_string(&path).unwrap().replace(env!("CARGO_PKG_VERSION"), "0.0.0");
        fs::write(&path, older).unwrap();
        assert_eq!(begin(&mut CrashJournal::open(folder.path(), true), &bad), ReadDecision::Read);
    }

    #[test]
    fn a_journal_that_cannot_be_read_or_written_does_not_stop_a_sync() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE_NAME), b"{\"reading\": 7").unwrap();
        assert_eq!(
            begin(&mut CrashJournal::open(folder.path(), false), &document("a", "b")),
            ReadDecision::Read
        );
        let no_folder = folder.path().join(FILE_NAME).join("below-a-file");
        let mut journal = CrashJournal::open(&no_folder, false);
        assert_eq!(begin(&mut journal, &document("a", "b")), ReadDecision::Read);
        journal.finish(true);
        journal.close();
    }
}
