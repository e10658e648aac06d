//! A browser stand-in for OAuth logins: follows redirects, and so approves everything.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;

const REDIRECTS_MAX: usize = 5;

/// Opens a URL and follows its redirects.
pub(crate) fn browse(url: &str) -> io::Result<()> {
    let mut next = Some(url.to_owned());
    for _ in 0..REDIRECTS_MAX {
        let Some(url) = next else { break };
        next = get(&url)?;
    }
    Ok(())
}

/// Requests a page; returns the target of a redirect.
fn get(url: &str) -> io::Result<Option<String>> {
    let wrong = || io::Error::new(ErrorKind::InvalidInput, "not an address of this machine");
    let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
    let mut stream = TcpStream::connect(host)?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("location") => {
                return Ok(Some(value.trim().to_owned()));
            }
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    Ok(None)
}
