//! An HTTP response, and a minimal parser for it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;

/// An HTTP response with a JSON body.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body; null if there is none.
    pub body: Value,
}

impl HttpResponse {
    /// Reads one response to its end.
    #[track_caller]
    pub fn read(stream: &TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let status_line = line(&mut reader);
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not an HTTP status line: `{status_line}`"));
        let mut headers = BTreeMap::new();
        loop {
            let header = line(&mut reader);
            let Some((name, value)) = header.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = match body.as_slice() {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes).expect("the body is JSON"),
        };
        Self { status, headers, body }
    }

    /// The error code; empty if the response is no error.
    pub fn error_code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    /// The `source_id` of every search result, best first.
    #[track_caller]
    pub fn found_ids(&self) -> Vec<String> {
        result_ids(&self.body)
    }
}

#[track_caller]
pub(crate) fn result_ids(response: &Value) -> Vec<String> {
    let results = response["results"].as_array().unwrap_or_else(|| panic!("no results: {response}"));
    results.iter().map(|hit| hit["source_id"].as_str().unwrap().to_owned()).collect()
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
