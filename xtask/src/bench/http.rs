//! The smallest HTTP client that can measure: one connection, kept alive.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A connection to a server.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Connection {
    pub(crate) fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), host: address.to_owned() })
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<(u16, String)> {
        self.send("GET", path, "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Result<(u16, String)> {
        self.send("POST", path, body)
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.receive()
    }

    fn receive(&mut self) -> Result<(u16, String)> {
        let mut status = String::new();
        self.stream.read_line(&mut status)?;
        let status =
            status.split_whitespace().nth(1).and_then(|code| code.parse().ok()).context("no status")?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, String::from_utf8(body)?))
    }
}
