//! Dates and authors of files, from one pass over `git log`.

use super::cat_file::{missing_pipe, read_token};
use super::program::{GitError, GitProgram};
use jiff::Timestamp;
use std::collections::BTreeMap;
use tokio::io::BufReader;

/// Maximum length of an author's name in bytes.
const AUTHOR_BYTES_MAX: usize = 200;
/// First byte of a commit in the log. No raw entry begins with it, and a path only follows a raw entry.
const COMMIT_MARK: u8 = 2;

const LOG: [&str; 15] = [
    "log",
    // Children before parents, even with wrong clocks.
    "--date-order",
    "--root",
    // A merge changes a file only if the result differs from all parents.
    "-c",
    "--raw",
    "--no-abbrev",
    "-z",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-notes",
    "--no-decorate",
    "--no-mailmap",
    "--encoding=UTF-8",
    "--format=%x02%H %ct %an",
];

/// Dates and last author of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileHistory {
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) author: String,
    /// The last commit that changed the file.
    pub(super) commit: String,
}

/// Histories of files by their path in the repository; `None` until a commit of the file is found.
pub(super) type HistoryByPath = BTreeMap<Vec<u8>, Option<FileHistory>>;

/// Fills in the histories of these files, from the commits that are reachable from `tip` and not from `before`.
pub(super) async fn read(
    program: &GitProgram,
    tip: &str,
    before: Option<&str>,
    root: &str,
    history: &mut HistoryByPath,
) -> Result<(), GitError> {
    let before = before.map(|before| format!("^{before}"));
    let mut arguments: Vec<&str> = LOG.to_vec();
    arguments.push(tip);
    arguments.extend(before.as_deref());
    arguments.push("--");
    arguments.extend((!root.is_empty()).then_some(root));
    let mut running = program.start(program.local_command(arguments))?;
    let Some(stdout) = running.child.stdout.take() else { return Err(missing_pipe()) };
    let mut reader = BufReader::new(stdout);
    let mut parser = LogParser::default();
    let mut token = Vec::new();
    while read_token(&mut reader, 0, &mut token).await? {
        parser.handle_token(&token, history);
    }
    running.finish().await
}

/// Incremental parser of the log, which takes one NUL-terminated token at a time.
#[derive(Default)]
struct LogParser {
    commit: Option<LogCommit>,
    path_follows: bool,
}

struct LogCommit {
    id: String,
    at: Timestamp,
    author: String,
}

impl LogParser {
    fn handle_token(&mut self, token: &[u8], history: &mut HistoryByPath) {
        if std::mem::take(&mut self.path_follows) {
            if let (Some(commit), Some(file)) = (&self.commit, history.get_mut(token)) {
                commit.record_change(file);
            }
            return;
        }
        let token = token.strip_prefix(b"\n").unwrap_or(token);
        match token.split_first() {
            Some((&COMMIT_MARK, rest)) => self.commit = LogCommit::parse(rest),
            Some((b':', _)) => self.path_follows = true,
            _ => {}
        }
    }
}

impl LogCommit {
    /// `<id> <seconds> <author>`
    fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let mut fields = text.splitn(3, ' ');
        let (id, seconds, author) = (fields.next()?, fields.next()?, fields.next()?);
        let at = Timestamp::from_second(seconds.parse().ok()?).ok()?;
        let author = author[..author.floor_char_boundary(AUTHOR_BYTES_MAX)].trim().to_owned();
        Some(Self { id: id.to_owned(), at, author })
    }

    /// Updates the history of a file that this commit changed. Later commits come first in the log.
    fn record_change(&self, history: &mut Option<FileHistory>) {
        match history {
            Some(history) => history.created_at = self.at,
            None => {
                *history = Some(FileHistory {
                    created_at: self.at,
                    updated_at: self.at,
                    author: self.author.clone(),
                    commit: self.id.clone(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(tokens: &[&[u8]], paths: &[&[u8]]) -> HistoryByPath {
        let mut history: HistoryByPath = paths.iter().map(|path| (path.to_vec(), None)).collect();
        let mut parser = LogParser::default();
        tokens.iter().for_each(|token| parser.handle_token(token, &mut history));
        history
    }

    #[test]
    fn the_last_commit_gives_the_author_and_the_first_the_creation_date() {
        let history = parse(
            &[
                b"\x02c3 30 Jane Doe",
                b"\n:100644 100644 a b M",
                b"a.md",
                b":000000 100644 0 b A",
                b"\x02b.md",
                b"\x02c2 20 M\xff",
                b"",
                b"::100644 100644 100644 a b c MM",
                b"a.md",
                b"\x02c1 10 ",
                b"\n:000000 100644 0 a A",
                b"a.md",
                b":000000 100644 0 a A",
                b"unwanted.md",
            ],
            &[b"a.md", b"\x02b.md", b"never.md"],
        );
        let second = |second| Timestamp::from_second(second).unwrap();
        let dates = history[&b"a.md"[..]].clone().unwrap();
        assert_eq!((dates.created_at, dates.updated_at), (second(10), second(30)));
        assert_eq!((dates.author.as_str(), dates.commit.as_str()), ("Jane Doe", "c3"));
        assert_eq!(history[&b"\x02b.md"[..]].as_ref().map(|dates| dates.created_at), Some(second(30)));
        assert_eq!(history[&b"never.md"[..]], None);
        assert_eq!(history.len(), 3);
    }

    proptest! {
        #[test]
        fn no_log_makes_the_parser_panic(tokens in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
            let tokens: Vec<&[u8]> = tokens.iter().map(Vec::as_slice).collect();
            parse(&tokens, &[b"a"]);
        }
    }
}
