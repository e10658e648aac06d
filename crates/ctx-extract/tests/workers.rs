//! Extracts the same documents in process and in a worker, compares the texts, and prints the CPU time of both:
//! `cargo test --release -p ctx-extract --test workers -- 300`.
//!
//! The worker is this program, started again, so this test has a `main` of its own.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "all of it is a test that prints figures")]

use ctx_extract::{ExtractLimits, ExtractedText, RawDocument, STACK_BYTES, run_job};
use ctx_testkit::{PDF_PAGES, pdf};
use ctx_worker::{JobRequest, Pool, PoolSettings, WorkerProgram};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, thread};

const WORKER: &str = "__extract";
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
            let request = JobRequest {
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
        "{} PDFs of {PDF_PAGES} pages and {} kB: {in_process:?} of CPU in process, {through_worker:?} through a worker",
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

/// CPU time of this process and of its exited children.
fn cpu() -> Duration {
    /// The tick of `/proc` is a hundredth of a second on every Linux.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u32 = fields.skip(11).take(4).map(|field| field.parse::<u32>().unwrap()).sum();
    TICK * ticks
}
