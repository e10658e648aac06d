//! Misbehaving workers: the worst that a document could make a parser do.

use crate::Test;
use crate::common::{Workspace, hit_names, sync};
use crate::{MISBEHAVING, settings};
use ctx_extract::{ExtractLimits, run_job};
use ctx_knowledge::Extraction;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = tests!(misbehaving:
    misbehaving_documents_are_bounded_and_the_others_are_read,
);

const MEMORY_BYTES: usize = 256 << 20;
const TIME: Duration = Duration::from_secs(2);

/// A sandboxed worker that does what the name of a document says.
pub(crate) fn worker_main() -> ExitCode {
    ctx_worker::worker_main(|| Ok(()), |pipe, ()| ctx_worker::serve_requests(pipe, misbehave))
}

fn misbehave(header: &[u8], bytes: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let says = |name: &str| header.windows(name.len()).any(|window| window == name.as_bytes());
    let body = |length: usize| {
        (
            br#"{"Ok":{"structure":"plain","content_type":"text/html","tags":[],"metadata":{}}}"#.to_vec(),
            vec![b'x'; length],
        )
    };
    if says("hangs.html") {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3_600) {
            std::hint::black_box(began);
        }
    }
    if says("eats-memory.html") {
        let mut eaten: Vec<Vec<u8>> = Vec::new();
        loop {
            eaten.push(std::hint::black_box(vec![1; 8 << 20]));
        }
    }
    if says("aborts.html") {
        std::process::abort();
    }
    if says("overflows.html") {
        return (overflow(1).to_string().into_bytes(), Vec::new());
    }
    if says("says-too-much.html") {
        return body(ExtractLimits::DEFAULT.text_bytes + (5 << 20));
    }
    if says("floods.html") {
        return body(80 << 20);
    }
    if says("says-no-json.html") {
        return (b"{".to_vec(), Vec::new());
    }
    if says("says-no-text.html") {
        return (body(0).0, vec![0xff; 10]);
    }
    if says("reads-files.html") {
        let read = std::fs::read("/etc/passwd").map_or_else(|error| error.to_string(), |_| "read".to_owned());
        return (body(0).0, read.into_bytes());
    }
    run_job(header, bytes)
}

#[allow(unconditional_recursion, reason = "it overflows the stack on purpose")]
fn overflow(depth: u64) -> u64 {
    std::hint::black_box(overflow(std::hint::black_box(depth + 1)) + depth)
}

async fn misbehaving_documents_are_bounded_and_the_others_are_read() {
    let expected = [
        ("aborts.html", "the extraction worker crashed (signal: 6 (SIGABRT)"),
        ("eats-memory.html", "reading it took more than 256 MB of memory"),
        ("floods.html", "the extraction worker crashed (exit status: 1)"),
        ("hangs.html", "reading it took longer than 2 s"),
        ("overflows.html", "the extraction worker crashed (signal: "),
        ("says-no-json.html", "the extraction worker sent invalid or too deeply nested JSON"),
        ("says-no-text.html", "the extraction worker returned text that is not UTF-8"),
        ("says-too-much.html", "the extraction worker sent a frame that is too large"),
    ];
    let workspace =
        expected.iter().fold(Workspace::new(), |workspace, (name, _)| workspace.file(name, "<p>x"));
    let workspace =
        workspace.file("reads-files.html", "<p>x").file("zz.html", "<p>lighthouse").file("a.md", "harbour");
    let mut settings = settings(MISBEHAVING);
    settings.memory_bytes_max = MEMORY_BYTES;
    settings.limits.time = TIME;
    settings.grace = Duration::from_millis(500);
    let extraction = Extraction::confined(settings);
    let workspace = workspace.extraction(extraction.clone());
    let knowledge = workspace.open();
    let report = sync(&knowledge).await;
    assert_eq!(report.warning_count as usize, expected.len(), "{report:?}");
    for ((name, reason), warning) in expected.iter().zip(&report.warnings) {
        assert_eq!(warning.source_id, *name);
        assert!(warning.reason.starts_with(reason), "{warning:?}");
    }
    assert_eq!(report.added, 3, "{report:?}");
    assert_eq!(hit_names(&knowledge, "lighthouse"), ["zz.html"]);
    assert_eq!(hit_names(&knowledge, "operation permitted"), ["reads-files.html"]);
    // A document that fails is not read again until it changes.
    let again = sync(&knowledge).await;
    assert_eq!((again.added, again.warning_count as usize), (0, expected.len()));
    assert_eq!(extraction.pool_stats().unwrap().workers, 1, "those that failed are gone");
}
