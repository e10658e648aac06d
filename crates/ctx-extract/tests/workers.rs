//! The same texts in this process and through a worker, and the CPU time of both:
//! `cargo test --release -p ctx-extract --test workers -- 300`.
//!
//! The worker is this program, started again; so it has a `main` of its own.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "all of it is a test that prints figures")]

use ctx_extract::{ExtractLimits, ExtractedText, RawDocument, STACK_BYTES, run_job};
use ctx_worker::{Pool, PoolSettings, Request, WorkerProgram};
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, thread};

const WORKER: &str = "__extract";
const PAGES: usize = 8;
const PICTURE_BYTES: usize = 30_000;
const MINUTE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let first = env::args().nth(1).unwrap_or_default();
    let main = move || match &*first {
        WORKER => ctx_worker::worker_main(|| Ok(()), |pipe, ()| ctx_worker::serve_requests(pipe, run_job)),
        count => {
            let documents: Vec<Vec<u8>> =
                (0..count.parse().unwrap_or(3)).map(|seed| pdf(seed, PICTURE_BYTES)).collect();
            compare(&documents);
            // More than fits into one frame.
            let large = pdf(0, 9 << 20);
            assert!(large.len() > ctx_worker::PAYLOAD_BYTES_MAX);
            compare(&[large]);
            ExitCode::SUCCESS
        }
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(main).unwrap().join().unwrap()
}

fn compare(documents: &[Vec<u8>]) {
    let document = |bytes: &[u8]| RawDocument::new(bytes.to_vec(), "a.pdf", None);
    let before = cpu();
    let here: Vec<ExtractedText> = documents
        .iter()
        .map(|bytes| {
            ctx_extract::extract(document(bytes), ExtractLimits::DEFAULT, Arc::new(|| false)).unwrap()
        })
        .collect();
    let in_process = cpu() - before;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let before = cpu();
    let there: Vec<ExtractedText> = runtime.block_on(async {
        let pool = pool();
        let mut texts = Vec::new();
        for bytes in documents {
            let document = document(bytes);
            let request = Request {
                json: &ctx_extract::encode_job(&document, ExtractLimits::DEFAULT).unwrap(),
                bytes: document.bytes(),
                wait_max: MINUTE,
                time_max: MINUTE,
                reply_bytes_max: 64 << 20,
            };
            let (header, body) = pool.request(&request).await.unwrap();
            texts.push(ctx_extract::decode_reply(header, body).unwrap());
        }
        pool.shutdown().await;
        texts
    });
    let through_worker = cpu() - before;
    assert_eq!(here, there);
    assert!(here.iter().all(|text| text.body.len() > 1_000));
    println!(
        "{} PDFs of {PAGES} pages and {} kB: {in_process:?} of CPU in process, {through_worker:?} through a worker",
        documents.len(),
        documents.first().map_or(0, Vec::len) >> 10
    );
}

fn pool() -> Arc<Pool> {
    let program = WorkerProgram { path: env::current_exe().unwrap(), arguments: vec![WORKER.into()] };
    let settings = PoolSettings {
        program,
        workers_max: 1,
        workers_spare: 0,
        queue_max: 1,
        idle_max: MINUTE,
        memory_bytes_max: 1 << 30,
        kept_bytes_max: 128 << 20,
        depth_max: 0,
    };
    Pool::new(settings).unwrap()
}

/// CPU time of this process and of its children that have ended.
fn cpu() -> Duration {
    /// Ticks of `/proc` are hundredths of a second on every Linux.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u32 = fields.skip(11).take(4).map(|field| field.parse::<u32>().unwrap()).sum();
    TICK * ticks
}

/// A document with text and a picture on each page.
fn pdf(seed: usize, picture_bytes: usize) -> Vec<u8> {
    let mut objects: Vec<Vec<u8>> = Vec::new();
    let kids: String = (0..PAGES).map(|page| format!("{} 0 R ", 4 + page * 3)).collect();
    objects.push(b"<< /Type /Catalog /Pages 2 0 R >>".to_vec());
    objects.push(format!("<< /Type /Pages /Count {PAGES} /Kids [{kids}] >>").into_bytes());
    objects.push(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_vec());
    for page in 0..PAGES {
        let (content, picture) = (5 + page * 3, 6 + page * 3);
        objects.push(
            format!(
                "<< /Type /Page /Parent 2 0 R /Contents {content} 0 R /Resources << /Font << /F 3 0 R >> /XObject << /X {picture} 0 R >> >> >>"
            )
            .into_bytes(),
        );
        let mut text = String::from("BT /F 11 Tf 14 TL 50 800 Td\n");
        for line in 0..50 {
            let _ = writeln!(
                text,
                "(Line {line} of page {page} in document {seed}: ships arrive at the harbour before noon.) Tj T*"
            );
        }
        text.push_str("ET /X Do");
        objects.push(stream("", text.as_bytes()));
        objects.push(stream(
            "/Type /XObject /Subtype /Image /Width 100 /Height 100",
            &vec![b'\x7f'; picture_bytes],
        ));
    }
    let mut bytes = b"%PDF-1.5\n".to_vec();
    let mut places = String::new();
    for (index, object) in objects.iter().enumerate() {
        let _ = writeln!(places, "{:010} 00000 n ", bytes.len());
        bytes.extend(format!("{} 0 obj\n", index + 1).into_bytes());
        bytes.extend(object);
        bytes.extend(b"\nendobj\n");
    }
    let (at, count) = (bytes.len(), objects.len() + 1);
    bytes.extend(
        format!(
            "xref\n0 {count}\n0000000000 65535 f \n{places}trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{at}\n%%EOF\n"
        )
        .into_bytes(),
    );
    bytes
}

fn stream(about: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = format!("<< {about} /Length {} >>\nstream\n", content.len()).into_bytes();
    bytes.extend(content);
    bytes.extend(b"\nendstream");
    bytes
}
