//! A table of misbehaving servers: each case must stay within a memory limit and leave no process behind.

use crate::fixture::{SERVER, UpstreamFixture, until};
use crate::harness::Test;
use crate::{misbehaving_server, protocol_errors};
use ctx_mcp::{Headers, HttpTransportKind, OAuthSettings, Transport, UpstreamSettings, UpstreamState};
use ctx_testkit::MockWebServer;
use serde_json::json;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![misbehaviours:
    no_misbehaviour_takes_memory_or_leaves_a_process,
];

/// Megabytes by which one case may raise peak memory.
const GROWTH_MAX: usize = 160;

/// The transport of a case.
#[derive(Clone, Copy)]
enum TransportKind {
    Process,
    Shell(&'static str),
    Http,
    Sse,
}

/// The expected outcome of a case.
#[derive(Clone, Copy)]
enum ExpectedOutcome {
    /// The call works.
    Works,
    /// The call fails for this reason; the next one works.
    CallFails(&'static str),
    /// The call times out; the next one works.
    TimesOut,
    /// The call times out, and so does the next one.
    Hangs,
    /// Connecting fails for this reason.
    Fails(&'static str),
    /// The server is disconnected for this reason.
    Disconnects(&'static str),
    /// The call may work or fail; the next one works.
    Survives,
}

use ExpectedOutcome::{CallFails, Disconnects, Fails, Hangs, Survives, TimesOut, Works};
use TransportKind::{Http, Process, Shell, Sse};

const CASES: &[(&str, TransportKind, ExpectedOutcome)] = &[
    ("pings", Process, Disconnects("too many `ping`")),
    ("pings, reading no answer", Process, Disconnects("does not read the responses")),
    ("pings by one number", Process, Disconnects("too many `ping`")),
    ("pings before the handshake", Process, Disconnects("too many `ping`")),
    ("progress", Process, Disconnects("too many `notifications/progress`")),
    ("logs", Process, Disconnects("too many `notifications/message`")),
    ("long logs", Process, Disconnects("more than 67108864 bytes of unsolicited messages")),
    ("resource updates", Process, Disconnects("too many `notifications/resources/updated`")),
    ("tool list changes", Process, Disconnects("too many `notifications/tools/list_changed`")),
    ("prompt list changes", Process, Disconnects("too many `notifications/prompts/list_changed`")),
    ("resource list changes", Process, Disconnects("too many `notifications/resources/list_changed`")),
    ("pings that are cancelled", Process, Disconnects("more than 10000 unsolicited messages")),
    ("cancellations", Process, Disconnects("too many `notifications/cancelled`")),
    ("unknown notifications", Process, Disconnects("too many `notifications/nonsense`")),
    ("unknown requests", Process, Disconnects("too many `nonsense/do`")),
    ("stray answers", Process, Disconnects("too many responses that match no request")),
    ("stray errors", Process, Disconnects("too many responses that match no request")),
    ("noise", Process, Disconnects("too much that is not an MCP message")),
    ("long noise", Process, Disconnects("too much that is not an MCP message: more than 67108864 bytes")),
    ("empty lines", Process, Disconnects("too much that is not an MCP message")),
    ("samplings", Process, Survives),
    ("elicitations", Process, Survives),
    ("roots", Process, Survives),
    ("stray answers first", Process, Works),
    ("stray answers between", Process, Works),
    ("garbage first", Process, Works),
    ("floods stderr", Process, Works),
    ("answers in pieces", Process, Works),
    ("another's number first", Process, Works),
    ("every answer twice", Process, Works),
    ("numbers as texts", Process, Works),
    ("an unknown revision", Process, Works),
    ("a description of 7 megabytes", Process, Works),
    ("definitions that change each time", Process, Works),
    ("stays after its input has ended", Process, Works),
    ("a daemon", Process, Works),
    ("a session of its own", Process, Works),
    ("many that multiply", Process, Works),
    ("a line without end", Process, TimesOut),
    ("reads no more", Process, Hangs),
    ("answers after it was taken back", Process, TimesOut),
    ("an answer of 100 megabytes", Process, CallFails("longer than 8388608 bytes")),
    ("an answer that is no UTF-8", Process, CallFails("cannot be read")),
    ("an answer 100,000 levels deep", Process, CallFails("cannot be read")),
    ("exits in the middle of a call", Process, CallFails("the connection was lost")),
    ("half an answer, then an end", Process, CallFails("the connection was lost")),
    ("exits at once", Process, Fails("its process ended with exit status: 3")),
    ("answers nothing", Process, Fails("it did not answer within")),
    ("initialize is answered with nonsense", Process, Fails("it did not complete the MCP handshake")),
    ("10,000 tools", Process, Fails("more than 5000 tools")),
    ("endless pages", Process, Fails("more than 500 pages")),
    ("pages in a circle", Process, Fails("never ends")),
    ("closes its output and lives on", Shell("exec >&-; exec sleep 1000"), Fails("its process")),
    (
        "ignores every signal",
        Shell("trap '' TERM HUP INT; exec >&-; while :; do sleep 1; done"),
        Fails("its process"),
    ),
    ("is no program of MCP", Shell("echo hello; exec cat"), Fails("it did")),
    ("redirects in a circle", Http, Fails("HTTP 307")),
    ("closes without a word", Http, Fails("")),
    ("headers without end", Http, Fails("")),
    ("an event without end", Http, CallFails("longer than 8388608 bytes")),
    ("comments without end", Http, CallFails("longer than 8388608 bytes")),
    ("a body without end", Http, CallFails("longer than 8388608 bytes")),
    ("a wrong type of content", Http, CallFails("text/html")),
    ("a negative length", Http, CallFails("")),
    ("a length that is too long", Http, CallFails("")),
    ("half of the JSON", Http, CallFails("cannot be read")),
    ("chunks of no length", Http, CallFails("")),
    ("a byte now and then", Http, TimesOut),
    ("stray events first", Http, Works),
    ("a stream that ends at once, again and again", Http, Works),
    ("notifications on the stream", Http, Disconnects("too many `notifications/message`")),
    (
        "noise on the stream",
        Http,
        Disconnects("too much that is not an MCP message: more than 10000 unsolicited messages"),
    ),
    (
        "long noise on the stream",
        Http,
        Disconnects("too much that is not an MCP message: more than 67108864 bytes"),
    ),
    (
        "noise on resumed streams",
        Http,
        Disconnects("too much that is not an MCP message: more than 10000 unsolicited messages"),
    ),
    ("pings over HTTP", Http, Disconnects("does not read the responses")),
    ("progress over HTTP", Http, Disconnects("too many `notifications/progress`")),
    ("tool list changes over HTTP", Http, Disconnects("too many `notifications/tools/list_changed`")),
    ("elicitations over HTTP", Http, Survives),
    ("stray answers over HTTP", Http, CallFails("more than 1000 events that are not the response")),
    ("noise over HTTP", Http, CallFails("more than 1000 events that are not the response")),
    (
        "long noise over HTTP",
        Http,
        Disconnects("too much that is not an MCP message: more than 67108864 bytes"),
    ),
    ("no address over SSE", Sse, Fails("it did not answer within")),
    ("an address elsewhere over SSE", Sse, Fails("another origin")),
    ("an event without end over SSE", Sse, Fails("too long")),
    ("pings over SSE", Sse, Fails("")),
    ("logs over SSE", Sse, Fails("too many `notifications/message`")),
    ("long noise over SSE", Sse, Fails("too much that is not an MCP message: more than 67108864 bytes")),
    ("stray answers over SSE", Sse, Fails("too many responses that match no request")),
];

async fn no_misbehaviour_takes_memory_or_leaves_a_process() {
    let only = std::env::var("CTX_MISBEHAVIOUR").ok();
    let mut count = 0;
    let is_wanted = |name: &str| only.as_deref().is_none_or(|only| only.split('|').any(|only| only == name));
    for (name, transport, outcome) in CASES.iter().filter(|(name, ..)| is_wanted(name)) {
        protocol_errors::peak_memory_mb();
        let before = protocol_errors::peak_memory_mb();
        let server = serve(name, *transport);
        let url = server.as_ref().map(|server| server.url("/mcp")).unwrap_or_default();
        let fixture =
            UpstreamFixture::with("", |settings| configure(settings, name, *transport, *outcome, url)).await;
        check(name, &fixture, *outcome).await;
        fixture.upstreams.shutdown().await;
        if *name == "a stream that ends at once, again and again" {
            let opened = server.as_ref().map(|server| server.requests().len()).unwrap_or_default();
            assert!(opened < 100, "{name}: {opened} requests");
        }
        drop(fixture);
        until(&format!("{name}: nothing of it runs"), || leftover_processes(name).is_empty()).await;
        let after = protocol_errors::peak_memory_mb();
        assert!(after <= before + GROWTH_MAX, "{name}: {before} MB became {after} MB");
        eprintln!("  {name}: {} MB", after.saturating_sub(before));
        count += 1;
    }
    eprintln!("  {count} misbehaviours of upstream servers");
    assert!(only.is_some() || count >= 30);
}

async fn check(name: &str, fixture: &UpstreamFixture, outcome: ExpectedOutcome) {
    let reason = || match fixture.state() {
        UpstreamState::Failed { reason, .. } => reason,
        _ => String::new(),
    };
    let misbehave = async || {
        let called = fixture.call("misbehave", json!({})).await;
        called.map(ctx_core::Output::into_data).map_err(|error| error.message().to_owned())
    };
    match outcome {
        Works => assert_eq!(misbehave().await, Ok(json!("misbehave")), "{name}"),
        CallFails(expected) => {
            let failed = misbehave().await.unwrap_err();
            assert!(failed.contains(expected), "{name}: {failed}");
        }
        TimesOut | Hangs => {
            let failed = misbehave().await.unwrap_err();
            assert!(failed.contains("timed out"), "{name}: {failed}");
            if matches!(outcome, Hangs) {
                return;
            }
        }
        Survives => drop(misbehave().await),
        Fails(expected) => {
            let failed = reason();
            assert!(
                !failed.is_empty() && failed.contains(expected),
                "{name}: {failed} {:?}",
                fixture.state()
            );
            return;
        }
        Disconnects(expected) => {
            let flooded = async {
                drop(misbehave().await);
                std::future::pending::<()>().await;
            };
            let what = format!("{name}: it is disconnected");
            tokio::select! {
                () = until(&what, || reason().contains(expected)) => {}
                () = flooded => {}
            }
            return;
        }
    }
    // The next call works, on this connection or a new one.
    let mut echoed = String::new();
    for _ in 0..30 {
        match fixture.call("echo", json!({})).await {
            Ok(_) => return,
            Err(error) => echoed = error.message().to_owned(),
        }
    }
    panic!("{name}: {echoed}");
}

fn serve(name: &'static str, transport: TransportKind) -> Option<MockWebServer> {
    match transport {
        Http => Some(MockWebServer::stream(move |request, stream| {
            misbehaving_server::answer(name, request, stream)
        })),
        Sse => Some(MockWebServer::stream(move |request, stream| {
            misbehaving_server::answer_sse(name, request, stream)
        })),
        Process | Shell(_) => None,
    }
}

fn configure(
    settings: &mut UpstreamSettings,
    name: &str,
    transport: TransportKind,
    outcome: ExpectedOutcome,
    url: String,
) {
    settings.limits.start = match outcome {
        Fails("it did not answer within" | "it did") => Duration::from_secs(2),
        _ => Duration::from_secs(20),
    };
    settings.limits.call = match outcome {
        TimesOut | Hangs => Duration::from_secs(1),
        Survives => Duration::from_secs(5),
        _ => Duration::from_secs(60),
    };
    let kind = if matches!(transport, Sse) { HttpTransportKind::Sse } else { HttpTransportKind::Streamable };
    match (&mut settings.transport, transport) {
        (Transport::Stdio(command), Process | Shell(_)) => {
            command.environment.push(("MISBEHAVES".into(), name.into()));
            command.arguments = vec![SERVER.into(), misbehaving_server::KIND.into(), name.into()];
            if let Shell(script) = transport {
                command.program = "sh".into();
                command.arguments = vec!["-c".into(), script.into()];
            }
        }
        (setting, _) => {
            let (headers, oauth) = (Headers::default(), OAuthSettings::default());
            *setting = Transport::Http { url, headers, kind, oauth };
        }
    }
}

/// Running processes of the server of a case, found by an environment variable that they inherit.
fn leftover_processes(name: &str) -> Vec<String> {
    let mark = format!("MISBEHAVES={name}\0");
    let Ok(folders) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_marked = |path: &std::path::Path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    let paths = folders.filter_map(|folder| Some(folder.ok()?.path()));
    paths.filter(|path| is_marked(path)).map(|path| path.display().to_string()).collect()
}
