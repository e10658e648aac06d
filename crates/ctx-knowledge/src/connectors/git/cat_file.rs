//! Reads objects of a mirror: lists the files of a tree, and reads sizes and contents one at a time.

use super::program::{GitError, GitProgram, RunningCommand};
use crate::connectors::names;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

/// Timeout of reading one object or token from git.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of files; a small repository can claim to have billions.
const FILES_MAX: usize = 2_000_000;
/// Maximum length of a path or line; the rest is cut off.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// A file of a tree.
pub(super) struct TreeEntry<'a> {
    pub(super) mode: &'a str,
    pub(super) id: &'a str,
    /// Relative to the tree.
    pub(super) path: &'a [u8],
}

/// Calls `visit` with every file below a tree, except symbolic links and submodules.
pub(super) async fn list_files(
    program: &GitProgram,
    tree: &str,
    mut visit: impl FnMut(TreeEntry<'_>),
) -> Result<(), GitError> {
    let mut running = program.start(program.local_command(["ls-tree", "-r", "-z", "--full-tree", tree]))?;
    let Some(stdout) = running.child.stdout.take() else { return Err(missing_pipe()) };
    let mut reader = BufReader::new(stdout);
    let mut token = Vec::new();
    let mut count = 0;
    while read_token(&mut reader, 0, &mut token).await? {
        count += 1;
        if count > FILES_MAX {
            return Err(GitError::Failed(format!("it has more than {FILES_MAX} files below `root`")));
        }
        if let Some(entry) = parse_entry(&token) {
            visit(entry);
        }
    }
    running.finish().await
}

/// `100644 blob <id>\t<path>`
fn parse_entry(token: &[u8]) -> Option<TreeEntry<'_>> {
    let tab = token.iter().position(|byte| *byte == b'\t')?;
    let mut fields = std::str::from_utf8(&token[..tab]).ok()?.split(' ');
    let (mode, _kind, id) = (fields.next()?, fields.next()?, fields.next()?);
    let is_file = matches!(mode, "100644" | "100755" | "100664");
    is_file.then_some(TreeEntry { mode, id, path: &token[tab + 1..] })
}

/// Reads a token up to the byte `end`, which is left out; returns `false` at the end of the output. A token that is
/// too long is truncated.
pub(super) async fn read_token(
    reader: &mut (impl AsyncBufRead + Unpin),
    end: u8,
    token: &mut Vec<u8>,
) -> Result<bool, GitError> {
    token.clear();
    let mut has_token = false;
    loop {
        let available = timeout(READ_TIMEOUT, reader.fill_buf()).await.map_err(|_| GitError::TimedOut)??;
        if available.is_empty() {
            return Ok(has_token);
        }
        has_token = true;
        let at = available.iter().position(|byte| *byte == end);
        let part = &available[..at.unwrap_or(available.len())];
        token.extend_from_slice(&part[..part.len().min(TOKEN_BYTES_MAX.saturating_sub(token.len()))]);
        let used = part.len() + usize::from(at.is_some());
        reader.consume(used);
        if at.is_some() {
            return Ok(true);
        }
    }
}

/// A running `git cat-file`, which answers one query about an object after the other.
pub(super) struct CatFileProcess {
    running: RunningCommand,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl CatFileProcess {
    /// Starts a process for sizes only.
    pub(super) fn start_for_sizes(program: &GitProgram) -> Result<Self, GitError> {
        Self::start(program, "--batch-check")
    }

    /// Starts a process for sizes and contents.
    pub(super) fn start_for_contents(program: &GitProgram) -> Result<Self, GitError> {
        Self::start(program, "--batch")
    }

    fn start(program: &GitProgram, mode: &str) -> Result<Self, GitError> {
        let mut command = program.local_command(["cat-file", mode]);
        command.stdin(std::process::Stdio::piped());
        let mut running = program.start(command)?;
        let (Some(stdin), Some(stdout)) = (running.child.stdin.take(), running.child.stdout.take()) else {
            return Err(missing_pipe());
        };
        Ok(Self { running, stdin, stdout: BufReader::new(stdout), line: Vec::new() })
    }

    /// The size of an object; `None` if the mirror lacks it.
    pub(super) async fn size(&mut self, id: &str) -> Result<Option<u64>, GitError> {
        self.stdin.write_all(format!("{id}\n").as_bytes()).await?;
        if !read_token(&mut self.stdout, b'\n', &mut self.line).await? {
            return Err(GitError::Failed("git exited in the middle of its output".to_owned()));
        }
        let response = String::from_utf8_lossy(&self.line);
        if response.ends_with(" missing") {
            return Ok(None);
        }
        let size = response.rsplit(' ').next().and_then(|size| size.parse().ok());
        size.map(Some).ok_or_else(|| GitError::Failed(format!("unexpected output of git: `{response}`")))
    }

    /// The content of an object; `None` if the mirror lacks it. The caller has checked the size.
    pub(super) async fn content(&mut self, id: &str) -> Result<Option<Vec<u8>>, GitError> {
        let Some(size) = self.size(id).await? else { return Ok(None) };
        let mut bytes = names::allocate_buffer(size).map_err(GitError::Failed)?;
        bytes.resize(usize::try_from(size).map_err(io::Error::other)?, 0);
        let read = async {
            self.stdout.read_exact(&mut bytes).await?;
            self.stdout.read_u8().await
        };
        timeout(READ_TIMEOUT, read).await.map_err(|_| GitError::TimedOut)??;
        Ok(Some(bytes))
    }

    /// Closes the input and waits for the process to exit.
    pub(super) async fn finish(self) -> Result<(), GitError> {
        drop(self.stdin);
        self.running.finish().await
    }
}

pub(super) fn missing_pipe() -> GitError {
    GitError::Io(io::Error::other("a pipe is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[tokio::test]
    async fn tokens_end_at_nul_and_are_truncated_when_too_long() {
        let mut text = vec![b'x'; TOKEN_BYTES_MAX + 10];
        text.extend(b"\0short\0\0last");
        let mut reader = BufReader::with_capacity(7, text.as_slice());
        let mut lengths = Vec::new();
        let mut token = Vec::new();
        while read_token(&mut reader, 0, &mut token).await.unwrap() {
            lengths.push(token.len());
        }
        assert_eq!(lengths, [TOKEN_BYTES_MAX, 5, 0, 4]);
    }

    #[test]
    fn only_files_are_tree_entries() {
        let parsed =
            |token: &'static [u8]| parse_entry(token).map(|entry| (entry.mode, entry.id, entry.path));
        assert_eq!(parsed(b"100644 blob abc\ta\tb\n.md"), Some(("100644", "abc", &b"a\tb\n.md"[..])));
        assert_eq!(parsed(b"120000 blob abc\tlink"), None);
        assert_eq!(parsed(b"160000 commit abc\tsubmodule"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_entry_parser_panic(token in any::<Vec<u8>>()) {
            let _ = parse_entry(&token);
        }
    }
}
