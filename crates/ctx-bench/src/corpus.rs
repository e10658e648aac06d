//! Workspaces for benchmarks: above all a generated tree of text files, identical on every machine.

use anyhow::Result;
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use xtask::target;

/// Average size of a file; 7,000 files have 79 MB.
const FILE_BYTES: usize = 11_286;
const VOCABULARY: usize = 60_000;
/// Number of most common words that no query contains.
const STOP_WORDS: usize = 100;

/// A workspace with `files` text files, generated once and kept for later runs.
pub(crate) fn workspace(files: usize) -> Result<PathBuf> {
    workspace_in(folder(&format!("corpus-{files}")), files)
}

/// A separate workspace with `files` text files, for benchmarks that change the files.
pub(crate) fn workspace_to_change(files: usize) -> Result<PathBuf> {
    workspace_in(folder("corpus-changing"), files)
}

/// Adds a sentence to every file.
pub(crate) fn append_sentences(workspace: &Path) -> Result<()> {
    let words = vocabulary(&mut Random(0x5EED));
    let mut random = Random(std::process::id().into());
    for folder in fs::read_dir(workspace.join("docs"))? {
        for file in fs::read_dir(folder?.path())? {
            let sentence: Vec<&str> = (0..8).map(|_| word(&words, 0, &mut random)).collect();
            let mut file = fs::OpenOptions::new().append(true).open(file?.path())?;
            writeln!(file, "{}.", sentence.join(" "))?;
        }
    }
    Ok(())
}

pub(crate) fn workspace_in(root: PathBuf, files: usize) -> Result<PathBuf> {
    if root.join("complete").exists() {
        return Ok(root);
    }
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let mut random = Random(0x5EED);
    let words = vocabulary(&mut random);
    for index in 0..files {
        let folder = root.join("docs").join(format!("{:03}", index / 100));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{index:05}.md")), document(index, &words, &mut random))?;
    }
    configure(&root, "")?;
    fs::write(root.join("complete"), "")?;
    Ok(root)
}

/// The folder of a benchmark workspace.
pub(crate) fn folder(name: &str) -> PathBuf {
    target().join("bench").join(name)
}

/// Writes the `ctx.toml` of a workspace that indexes `docs`, with additional sections.
pub(crate) fn configure(workspace: &Path, more: &str) -> Result<()> {
    // The store is in the workspace, where `reset` can delete it.
    let config = "[db]\npath = \".ctx/data/ctx.sqlite\"\n\
        [connectors.filesystem.docs]\nroot = \"docs\"\nwatch = false\n[server]\nbind = \"127.0.0.1:0\"\n";
    Ok(fs::write(workspace.join("ctx.toml"), format!("{config}{more}"))?)
}

/// Deletes the index of a workspace.
pub(crate) fn reset(workspace: &Path) -> Result<()> {
    let data = workspace.join(".ctx");
    if data.exists() {
        fs::remove_dir_all(data)?;
    }
    Ok(())
}

/// Queries of two to six words, common and rare ones mixed as in the documents, but without the most common ones: those
/// make up almost half of any text, and in a real query they would be stop words.
pub(crate) fn queries(count: usize) -> Vec<String> {
    let words = vocabulary(&mut Random(0x5EED));
    let mut random = Random(0xA5C);
    (0..count)
        .map(|_| {
            let length = 2 + random.below(5);
            (0..length).map(|_| word(&words, STOP_WORDS, &mut random)).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn document(index: usize, words: &[String], random: &mut Random) -> String {
    let bytes = FILE_BYTES / 2 + random.below(FILE_BYTES);
    let mut text = format!("# Document {index} {}\n\n", word(words, 0, random));
    while text.len() < bytes {
        if random.below(12) == 0 {
            text.push_str(&format!("## {} {}\n\n", word(words, 0, random), word(words, 0, random)));
        }
        for _ in 0..3 + random.below(4) {
            let sentence: Vec<&str> = (0..6 + random.below(12)).map(|_| word(words, 0, random)).collect();
            text.push_str(&sentence.join(" "));
            text.push_str(". ");
        }
        text.push_str("\n\n");
    }
    text
}

fn vocabulary(random: &mut Random) -> Vec<String> {
    const SYLLABLES: [&str; 24] = [
        "ba", "con", "de", "er", "fi", "gra", "hol", "in", "ju", "ka", "lor", "mi", "nes", "op", "pre",
        "qui", "ran", "sta", "tion", "ul", "ver", "wes", "yal", "zo",
    ];
    // Distinct words only: a duplicate would be twice as frequent as intended.
    let mut seen = HashSet::new();
    let mut words = Vec::with_capacity(VOCABULARY);
    while words.len() < VOCABULARY {
        let word: String =
            (0..2 + random.below(3)).map(|_| SYLLABLES[random.below(SYLLABLES.len())]).collect();
        if seen.insert(word.clone()) {
            words.push(word);
        }
    }
    words
}

/// A random word, approximately by Zipf's law: the rank is exponential in a uniform number.
fn word<'a>(words: &'a [String], skipped: usize, random: &mut Random) -> &'a str {
    let uniform = random.below(1 << 20) as f64 / f64::from(1 << 20);
    let (lowest, highest) = ((skipped + 1) as f64, words.len() as f64);
    let rank = lowest * (highest / lowest).powf(uniform) - 1.0;
    &words[(rank as usize).min(words.len() - 1)]
}

/// The pseudorandom number generator SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
