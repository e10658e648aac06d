//! Deny-list of files that usually hold secrets: scripts can neither read nor list them. A script gets its own settings
//! and secrets from `context.config` and `env.get`.

use std::path::{Component, Path};

/// Directory names, with everything below.
const DIRECTORY_NAMES: [&str; 10] =
    [".aws", ".azure", ".ctx", ".docker", ".gcloud", ".git", ".gnupg", ".kube", ".ssh", ".svn"];

/// Whole file names.
const FILE_NAMES: [&str; 27] = [
    ".dockercfg",
    ".dockerconfigjson",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".vault-token",
    "_netrc",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "credentials.yaml",
    "credentials.yml",
    "ctx.toml",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "kubeconfig",
    "pgpass.conf",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
];

/// Prefixes of file names.
const NAME_PREFIXES: [&str; 1] = [".env"];

/// Suffixes of file names: environments, private keys and key stores.
const NAME_SUFFIXES: [&str; 9] =
    [".env", ".jks", ".kdbx", ".key", ".keystore", ".p12", ".pem", ".pfx", ".ppk"];

/// Start of a PEM header, and its label for private keys.
const PEM_START: &[u8] = b"-----BEGIN ";
const PEM_PRIVATE_KEY: &[u8] = b"PRIVATE KEY";

/// Base64 digits of a line that is part of a key, and not an example of one.
const KEY_LINE_MIN: usize = 40;

/// Lines after a PEM header in which the key begins: there may be headers of its own.
const KEY_LINES: usize = 4;

/// Whether a component of the path is on the deny-list. Case-insensitive, as some file systems are.
pub(super) fn is_secret(path: &Path) -> bool {
    path.components().any(|part| match part {
        Component::Normal(name) => is_secret_name(&name.to_string_lossy()),
        _ => false,
    })
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    // On Windows `:` begins the name of an alternate data stream; elsewhere it is a character of the name.
    std::iter::once(name.as_str()).chain(name.split(':')).any(|name| {
        // Windows ignores trailing dots and spaces.
        let name = name.trim_end_matches(['.', ' ']);
        DIRECTORY_NAMES.contains(&name)
            || FILE_NAMES.contains(&name)
            || NAME_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || NAME_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
    })
}

/// Whether the content is, or contains, a PEM private key, whatever the file's name. A mere header, as in a manual, is a
/// key only where the file begins with it.
pub(super) fn is_private_key(content: &[u8]) -> bool {
    let mut lines = content.trim_ascii_start().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    if lines.clone().next().is_some_and(is_key_header) {
        return true;
    }
    while lines.any(is_key_header) {
        if lines.clone().take(KEY_LINES).any(is_key_line) {
            return true;
        }
    }
    false
}

fn is_key_header(line: &[u8]) -> bool {
    line.starts_with(PEM_START) && line.windows(PEM_PRIVATE_KEY.len()).any(|part| part == PEM_PRIVATE_KEY)
}

fn is_key_line(line: &[u8]) -> bool {
    line.len() >= KEY_LINE_MIN
        && line.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_files_are_known_by_their_names() {
        for path in [
            "ctx.toml",
            "CTX.toml",
            "ctx.toml.",
            "config/ctx.toml",
            ".ctx/config.toml",
            ".CTX/data/ctx.sqlite",
            ".env",
            ".env.local",
            ".Env.Production",
            ".envrc",
            "prod.env",
            ".git/config",
            "sub/.git/HEAD",
            "keys/server.pem",
            "id_rsa",
            "tls.KEY",
            ".npmrc",
            ".aws/credentials",
            "ctx.toml::$DATA",
            "x:.env",
            "credentials.toml",
            "config/Credentials.yml",
            "secrets.yaml",
            "secrets.yml",
            ".dockercfg",
            ".docker/config.json",
            ".azure/accessTokens.json",
            ".kube/config",
            ".pgpass",
            ".netrc",
            ".pypirc",
        ] {
            assert!(is_secret(Path::new(path)), "{path}");
        }
        for path in [
            "data.json",
            "ctx.toml.md",
            "environment.md",
            "my.ctx/a",
            "gitignore",
            ".gitignore",
            "id_rsa.pub",
            "keys.md",
            "tokens.txt",
            "secrets.md",
            "10:30 notes.md",
            ".",
        ] {
            assert!(!is_secret(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_private_key_is_known_by_what_it_says() {
        assert!(is_private_key(b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl"));
        assert!(is_private_key(b"\n  -----BEGIN PRIVATE KEY-----\n"));
        assert!(!is_private_key(b"-----BEGIN CERTIFICATE-----\nMII"));
        assert!(!is_private_key(b"A key begins with -----BEGIN PRIVATE KEY-----"));
        assert!(!is_private_key(b""));
    }

    #[test]
    fn a_private_key_is_known_behind_a_certificate() {
        let line = "A".repeat(64);
        let certificate = format!("-----BEGIN CERTIFICATE-----\n{line}\n-----END CERTIFICATE-----\n");
        let bundle = format!(
            "{certificate}-----BEGIN RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\n\r\n{line}\r\n"
        );
        assert!(is_private_key(bundle.as_bytes()));
        let exported = format!("Bag Attributes\n  localKeyID: 01\n  -----BEGIN PRIVATE KEY-----\n  {line}\n");
        assert!(is_private_key(exported.as_bytes()));
        assert!(!is_private_key(certificate.repeat(3).as_bytes()));
        assert!(!is_private_key(
            b"# Keys\nA key looks like this:\n-----BEGIN PRIVATE KEY-----\nMIIE...\n-----END"
        ));
    }
}
