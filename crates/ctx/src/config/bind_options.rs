//! The bind address on the command line: `--bind`, `--port`.

use std::net::{IpAddr, Ipv6Addr};

/// Options of commands that serve at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct BindOptions {
    /// Serve at this port, and not at that of `server.bind`; 0 takes any that is free.
    #[arg(long, value_name = "PORT")]
    pub(super) port: Option<u16>,
    /// Serve at this address, and not at `server.bind`. As there, anything but a loopback address needs a token or
    /// `[server.oauth]`.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub(super) bind: Option<String>,
}

impl BindOptions {
    /// The bind address of `--http=ADDRESS`.
    pub(crate) fn at(bind: Option<String>) -> Self {
        Self { bind, port: None }
    }

    /// Whether any option was given.
    pub(crate) fn is_set(&self) -> bool {
        self.port.is_some() || self.bind.is_some()
    }

    /// The resulting bind address; `configured` fills in the missing parts.
    pub(super) fn resolve(&self, configured: &str) -> Result<String, String> {
        let (configured_host, configured_port) = split(configured);
        let (host, typed_port) = match &self.bind {
            Some(bind) => split(bind),
            None => (configured_host, None),
        };
        if self.bind.is_some() && host.bytes().all(|byte| byte.is_ascii_digit()) && typed_port.is_none() {
            return Err(format!("`--bind` takes an address; write `--port {host}` for a port"));
        }
        if typed_port.is_some() && self.port.is_some() {
            return Err("`--bind` and `--port` both contain a port; leave out one".to_owned());
        }
        Ok(match self.port.or(typed_port).or(configured_port) {
            Some(port) => format!("{host}:{port}"),
            None => host,
        })
    }
}

/// A host, in brackets if it is an IPv6 address, and the port if there is one.
fn split(bind: &str) -> (String, Option<u16>) {
    let unbracketed = bind.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(bind);
    if unbracketed.parse::<Ipv6Addr>().is_ok() {
        return (format!("[{unbracketed}]"), None);
    }
    if bind.parse::<IpAddr>().is_ok() {
        return (bind.to_owned(), None);
    }
    match bind.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
        Some((host, Ok(port))) => (host.to_owned(), Some(port)),
        _ => (bind.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_override_the_configured_address_part_by_part() {
        let over = |bind: Option<&str>, port: Option<u16>, configured: &str| {
            BindOptions { bind: bind.map(str::to_owned), port }.resolve(configured)
        };
        let default = "127.0.0.1:7331";
        for (bind, port, configured, expected) in [
            (None, Some(8080), default, "127.0.0.1:8080"),
            (None, Some(0), "[::1]:7331", "[::1]:0"),
            (Some("0.0.0.0"), None, default, "0.0.0.0:7331"),
            (Some("0.0.0.0:80"), None, default, "0.0.0.0:80"),
            (Some("::1"), None, default, "[::1]:7331"),
            (Some("[::1]"), Some(9), default, "[::1]:9"),
            (Some("[::1]:80"), None, default, "[::1]:80"),
            (Some("localhost"), Some(9), default, "localhost:9"),
            (Some("localhost:80"), None, "nonsense", "localhost:80"),
            (Some("localhost:http"), None, default, "localhost:http:7331"),
        ] {
            assert_eq!(over(bind, port, configured).as_deref(), Ok(expected), "{bind:?} {port:?}");
        }
        assert!(over(Some("8080"), None, default).unwrap_err().contains("--port 8080"));
        assert!(over(Some("::1"), Some(1), default).is_ok());
        assert!(over(Some("a:1"), Some(2), default).unwrap_err().contains("both contain a port"));
    }
}
