//! Overhead of API calls over requests of a plain HTTP client, and the cost of large descriptions for calls that do
//! not use them.

use super::corpora::{github, graph};
use super::large_functions;
use crate::gateway::StdioClient;
use crate::{median, percentile};
use anyhow::{Result, anyhow};
use ctx_core::{AddressPolicy, Call, Caller, Catalog, Identifier};
use ctx_net::{Client, ClientOptions, Request};
use ctx_openapi::{ApiOptions, ApiSettings, Apis, Spec};
use http::Method;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use xtask::{release_binary, root, target};

const WARM_UP_ROUNDS: usize = 500;
/// Number of calls of each kind; kinds alternate.
const CALLS: usize = 5_000;
const SCRIPTS: usize = 1_000;
const STARTS: usize = 11;

pub(super) fn measure() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure_calls())?;
    measure_sessions(&release_binary()?)?;
    large_functions::measure(&release_binary()?)
}

/// A local HTTP service that sends the same response to every request.
pub(crate) fn start_service() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve_requests(&stream));
        }
    });
    Ok(address)
}

/// An OpenAPI description of the service with one operation, `getPet`.
pub(crate) fn describe_service(address: &str) -> Value {
    let parameter = json!({"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}});
    let get_operation = json!({"operationId": "getPet", "parameters": [parameter]});
    json!({"openapi": "3.1.0", "servers": [{"url": address}], "paths": {"/pets/{id}": {"get": get_operation}}})
}

fn serve_requests(stream: &TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    let body = json!({"id": 7, "name": "Rex", "tags": ["a", "b"]}).to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
    let reply = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            (&*stream).write_all(reply.as_bytes()).ok()?;
        }
    }
}

/// Latency of a call through the catalog, compared with a request of a plain client to the same service.
async fn measure_calls() -> Result<()> {
    let service = start_service()?;
    let path = target().join("bench/openapi-pets.json");
    fs::create_dir_all(target().join("bench"))?;
    fs::write(&path, describe_service(&service).to_string())?;
    let settings = ApiSettings::new(Identifier::sanitize("pets"), Spec::File(path));
    let apis = Apis::start(
        vec![settings],
        &ApiOptions { cache: None, on_change: Arc::new(|| ()), is_trusted: Arc::new(|_, _| true) },
    );
    apis.wait_until_loaded().await;
    let providers = apis.providers().into_iter();
    let catalog = providers.fold(Catalog::builder(), |builder, api| builder.provider(api)).build();
    let first = Call::new(catalog.clone(), Caller::Library("bench".to_owned()));
    Catalog::call("pets.get_pet", json!({"id": 7}), first)
        .await
        .map_err(|error| anyhow!(error.to_string()))?;
    let client = Client::new(ClientOptions::default());
    let request = Request::new(Method::GET, format!("{service}/pets/7").parse()?);
    let (mut plain, mut through_catalog) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP_ROUNDS + CALLS {
        let started = Instant::now();
        let body = client.send(&request, AddressPolicy::TRUSTED).await?.read(1 << 20).await?;
        let value: serde_json::Value = serde_json::from_slice(&body)?;
        let plain_time = started.elapsed().as_secs_f64() * 1e3;
        let started = Instant::now();
        let call = Call::new(catalog.clone(), Caller::Library("bench".to_owned()));
        let output = Catalog::call("pets.get_pet", json!({"id": 7}), call).await;
        let catalog_time = started.elapsed().as_secs_f64() * 1e3;
        let output = output.map_err(|error| anyhow!(error.to_string()))?;
        anyhow::ensure!(output.value == value, "another answer");
        if round >= WARM_UP_ROUNDS {
            plain.push(plain_time);
            through_catalog.push(catalog_time);
        }
    }
    println!("\n| one GET to a service on this machine | p50 ms | p95 ms |\n|---|---|---|");
    for (label, times) in [("a plain client", &plain), ("a function of an API", &through_catalog)] {
        println!("| {label} | {:.3} | {:.3} |", median(times.clone()), percentile(&mut times.clone(), 0.95));
    }
    println!("\nA call adds {:.3} ms.", median(through_catalog) - median(plain));
    Ok(())
}

/// Startup time, and latency of a trivial script, with one function and with both large descriptions.
fn measure_sessions(binary: &Path) -> Result<()> {
    let state = tempfile::tempdir()?;
    let large_specs = [format!("github={}", github()?.display()), format!("graph={}", graph()?.display())];
    let pets = format!("pets={}", target().join("bench/openapi-pets.json").display());
    println!(
        "\n| `ctx run` on pipes | first answer ms | `execute` of `return 1`, p50 ms | p95 ms |\n|---|---|---|---|"
    );
    for (label, specs) in
        [("with one function", &[pets][..]), ("with GitHub and Microsoft Graph", &large_specs)]
    {
        let start = || {
            let mut command = Command::new(binary);
            command.arg("run").args(specs).env("XDG_STATE_HOME", state.path()).current_dir(root());
            StdioClient::start(&mut command)
        };
        let mut ready = Vec::new();
        for _ in 0..STARTS {
            ready.push(start()?.ready_ms);
        }
        let mut client = start()?;
        let empty = json!({"script": "return 1"});
        // Waits until the descriptions are read.
        for name in ["github.meta_get", "graph.x", "pets.x"] {
            let script = format!("pcall(function() return sdk.{name}{{}} end) return 1");
            if specs.iter().any(|spec| spec.starts_with(name.split('.').next().unwrap_or_default())) {
                client.call("execute", &json!({ "script": script })).ok();
            }
        }
        let mut times = Vec::new();
        for round in 0..WARM_UP_ROUNDS + SCRIPTS {
            let time = client.time("execute", &empty)?;
            if round >= WARM_UP_ROUNDS {
                times.push(time);
            }
        }
        let (p50, p95) = (median(times.clone()), percentile(&mut times, 0.95));
        println!("| {label} | {:.0} | {p50:.3} | {p95:.3} |", median(ready));
    }
    Ok(())
}
