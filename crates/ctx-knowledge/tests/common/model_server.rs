//! A scripted embedding service with the APIs of OpenAI and Ollama.

use ctx_core::Secret;
use ctx_knowledge::{EmbedderSettings, EmbeddingOptions, FillMode, PROVIDERS};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Default dimensions of its vectors.
const DIMENSIONS: usize = 64;

/// A server on a free port of this machine, stopped on drop.
pub(crate) struct ModelServer {
    address: SocketAddr,
    shared: Arc<SharedState>,
}

#[derive(Default)]
struct SharedState {
    state: Mutex<ModelServerState>,
    changed: Condvar,
    ended: AtomicBool,
}

#[derive(Default)]
struct ModelServerState {
    replies: VecDeque<ScriptedReply>,
    default_reply: Option<ScriptedReply>,
    requests: Vec<EmbeddingRequest>,
    dimensions: Option<usize>,
    rejected_word: Option<String>,
    held: bool,
}

/// A request that it received.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddingRequest {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

/// A response of the server.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedReply {
    /// A status, headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// The vectors, in a modified body.
    ModifiedVectors(fn(&mut Value)),
    /// None: the connection is closed.
    CloseConnection,
    /// The vectors.
    Vectors,
}

pub(crate) fn status(code: u16, body: &str) -> ScriptedReply {
    ScriptedReply::Status(code, Vec::new(), body.to_owned())
}

impl ModelServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(SharedState::default());
        let shared_state = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared_state.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (shared, stream) = (shared_state.clone(), stream.unwrap());
                // A client that disconnects ends only its own connection.
                thread::spawn(move || serve_connection(&shared, stream).ok());
            }
        });
        Self { address, shared }
    }

    /// Its URL for settings.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers the next requests like this, one by one; then with vectors again.
    pub(crate) fn reply_next(&self, replies: impl IntoIterator<Item = ScriptedReply>) {
        self.shared.state.lock().unwrap().replies.extend(replies);
    }

    /// Answers all requests like this from now on.
    pub(crate) fn reply_always(&self, reply: ScriptedReply) {
        self.shared.state.lock().unwrap().default_reply = Some(reply);
    }

    /// Returns vectors with other dimensions from now on.
    pub(crate) fn dimensions(&self, dimensions: usize) {
        self.shared.state.lock().unwrap().dimensions = Some(dimensions);
    }

    /// Rejects requests with this word in a text from now on.
    pub(crate) fn reject_texts_with(&self, word: Option<&str>) {
        self.shared.state.lock().unwrap().rejected_word = word.map(str::to_owned);
    }

    /// Holds requests until they are released.
    pub(crate) fn hold_requests(&self, held: bool) {
        self.shared.state.lock().unwrap().held = held;
        self.shared.changed.notify_all();
    }

    /// Waits until it has received this many requests.
    pub(crate) fn wait_for(&self, count: usize) {
        let state = self.shared.state.lock().unwrap();
        let waited = Duration::from_secs(60);
        let enough = |state: &mut ModelServerState| state.requests.len() < count;
        let (_state, timeout) = self.shared.changed.wait_timeout_while(state, waited, enough).unwrap();
        assert!(!timeout.timed_out(), "waited in vain for {count} requests");
    }

    /// The requests since this was last called.
    pub(crate) fn take_requests(&self) -> Vec<EmbeddingRequest> {
        std::mem::take(&mut self.shared.state.lock().unwrap().requests)
    }

    /// The number of texts of each request since this was last called.
    pub(crate) fn batches(&self) -> Vec<usize> {
        self.take_requests().iter().map(|request| request.texts().len()).collect()
    }

    /// The texts of all requests since this was last called.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.take_requests().iter().flat_map(EmbeddingRequest::texts).collect()
    }

    /// Settings that use this server.
    pub(crate) fn settings(&self, provider: &str, model: &str) -> EmbedderSettings {
        let path = if provider == "openai" { "/v1" } else { "" };
        EmbedderSettings {
            model: Some(model.to_owned()),
            url: Some(self.url() + path),
            timeout: Duration::from_secs(30),
            ..EmbedderSettings::default()
        }
    }

    /// Embedding options that use this server, with few texts per request and an API key.
    pub(crate) fn openai(&self, model: &str) -> EmbeddingOptions {
        let api_key = Some(Secret::new(API_KEY));
        let settings = EmbedderSettings { batch_size: Some(4), api_key, ..self.settings("openai", model) };
        options("openai", &settings)
    }
}

/// The API key of [`ModelServer::openai`].
pub(crate) const API_KEY: &str = "hunter2-hunter2-hunter2";

/// Embedding options of a provider.
pub(crate) fn options(provider: &str, settings: &EmbedderSettings) -> EmbeddingOptions {
    let kind = PROVIDERS.iter().find(|kind| kind.name == provider).unwrap();
    EmbeddingOptions { embedder: (kind.open)(settings).unwrap(), fill: FillMode::Behind }
}

impl EmbeddingRequest {
    pub(crate) fn texts(&self) -> Vec<String> {
        let input = self.body["input"].as_array().unwrap();
        input.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.hold_requests(false);
        // Wakes the server, so that it stops and closes its port.
        TcpStream::connect(self.address).ok();
    }
}

fn serve_connection(shared: &SharedState, mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        let reply = {
            let mut state = shared.state.lock().unwrap();
            state.requests.push(request.clone());
            shared.changed.notify_all();
            let mut state = shared.changed.wait_while(state, |state| state.held).unwrap();
            let next = state.replies.pop_front();
            let is_rejected = |word: &String| request.texts().iter().any(|text| text.contains(word));
            let rejection = state.rejected_word.as_ref().filter(|word| is_rejected(word));
            next.or_else(|| rejection.map(|word| status(400, &format!("no {word} here"))))
                .or_else(|| state.default_reply.clone())
                .unwrap_or(ScriptedReply::Vectors)
        };
        if shared.ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        let dimensions = shared.state.lock().unwrap().dimensions.unwrap_or(DIMENSIONS);
        let (code, headers, body) = match reply {
            ScriptedReply::CloseConnection => return Ok(()),
            ScriptedReply::Status(code, headers, body) => (code, headers, body),
            ScriptedReply::Vectors => (200, Vec::new(), vectors(&request, dimensions).to_string()),
            ScriptedReply::ModifiedVectors(change) => {
                let mut body = vectors(&request, dimensions);
                change(&mut body);
                (200, Vec::new(), body.to_string())
            }
        };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        write!(stream, "HTTP/1.1 {code} Said\r\n{headers}content-length: {length}\r\n\r\n{body}")?;
        stream.flush()?;
    }
    Ok(())
}

fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<EmbeddingRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(EmbeddingRequest { path, authorization, body }))
}

/// The response in the format of the API that was called.
fn vectors(request: &EmbeddingRequest, dimensions: usize) -> Value {
    let requested = request.body["dimensions"].as_u64().and_then(|size| usize::try_from(size).ok());
    let model = request.body["model"].as_str().unwrap_or_default();
    let embeddings =
        request.texts().into_iter().map(|text| vector(model, &text, requested.unwrap_or(dimensions)));
    if request.path.ends_with("/api/embed") {
        return json!({"model": model, "embeddings": embeddings.collect::<Vec<_>>()});
    }
    let data: Vec<Value> = embeddings
        .enumerate()
        .map(|(index, embedding)| json!({"object": "embedding", "index": index, "embedding": embedding}))
        .collect();
    json!({"object": "list", "data": data, "model": model})
}

/// Texts with the same words are similar; each model has its own directions. Not a unit vector.
fn vector(model: &str, text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.01; dimensions];
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    for word in words {
        let hash = blake3::hash(format!("{model} {}", word.to_lowercase()).as_bytes());
        let position = u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]);
        vector[usize::from(position) % dimensions] += 3.0;
    }
    vector
}
