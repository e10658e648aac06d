//! A minimal HTTP/1.1 client for measurements: one keep-alive connection.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A connection to a server.
pub struct HttpConnection {
    stream: BufReader<TcpStream>,
    host: String,
    /// Headers of the last response.
    headers: Vec<(String, String)>,
}

impl HttpConnection {
    /// Connects to `host:port`.
    pub fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), host: address.to_owned(), headers: Vec::new() })
    }

    /// Sends a GET; returns status and body.
    pub fn get(&mut self, path: &str) -> Result<(u16, String)> {
        self.send("GET", path, "", "")
    }

    /// Sends a POST with a JSON body; returns status and body.
    pub fn post(&mut self, path: &str, body: &str) -> Result<(u16, String)> {
        self.send("POST", path, "", body)
    }

    /// [`HttpConnection::post`] with further headers, each terminated by `\r\n`.
    pub fn post_with(&mut self, path: &str, headers: &str, body: &str) -> Result<(u16, String)> {
        self.send("POST", path, headers, body)
    }

    /// A header of the last response; `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<(u16, String)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
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
        self.headers.clear();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                self.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        if self.header("transfer-encoding") == Some("chunked") {
            return Ok((status, self.read_chunks()?));
        }
        let length = self.header("content-length").unwrap_or("0").parse()?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, String::from_utf8(body)?))
    }

    /// Reads a body with chunked transfer encoding.
    fn read_chunks(&mut self) -> Result<String> {
        let mut body = Vec::new();
        loop {
            let mut length = String::new();
            self.stream.read_line(&mut length)?;
            let length = usize::from_str_radix(length.trim(), 16)?;
            // The chunk and the line break after it.
            let start = body.len();
            body.resize(start + length + 2, 0);
            self.stream.read_exact(&mut body[start..])?;
            body.truncate(start + length);
            if length == 0 {
                return Ok(String::from_utf8(body)?);
            }
        }
    }
}
