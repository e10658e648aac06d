//! Deny-list of files that usually hold secrets: scripts can neither read nor list them. A script gets its own settings
//! and secrets from `context.config` and `env.get`.

use std::path::{Component, Path};

/// Directory names, with everything below.
const DIRECTORY_NAMES: [&str; 8] = [".aws", ".ctx", ".docker", ".git", ".gnupg", ".kube", ".ssh", ".svn"];

/// Whole file names.
const FILE_NAMES: [&str; 16] = [
    ".git-credentials",
    ".htpasswd",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    "_netrc",
    "credentials",
    "credentials.json",
    "ctx.toml",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "secrets.json",
    "secrets.toml",
];

/// Prefixes of file names.
const NAME_PREFIXES: [&str; 1] = [".env"];

/// Suffixes of file names: environments, private keys and key stores.
const NAME_SUFFIXES: [&str; 9] =
    [".env", ".jks", ".kdbx", ".key", ".keystore", ".p12", ".pem", ".pfx", ".ppk"];

/// Start of a PEM header, and its label for private keys.
const PEM_START: &[u8] = b"-----BEGIN ";
const PEM_PRIVATE_KEY: &[u8] = b"PRIVATE KEY";

/// Whether a component of the path is on the deny-list. Case-insensitive, as some file systems are.
pub(super) fn is_secret(path: &Path) -> bool {
    path.components().any(|part| match part {
        Component::Normal(name) => is_secret_name(&name.to_string_lossy()),
        _ => false,
    })
}

fn is_secret_name(name: &str) -> bool {
    // Windows ignores trailing dots and spaces, and `:` begins the name of an alternate data stream.
    let name = name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']).to_lowercase();
    DIRECTORY_NAMES.contains(&name.as_str())
        || FILE_NAMES.contains(&name.as_str())
        || NAME_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || NAME_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Whether the content is a PEM private key, whatever the file's name.
pub(super) fn is_private_key(content: &[u8]) -> bool {
    let content = content.trim_ascii_start();
    let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.starts_with(PEM_START) && line.windows(PEM_PRIVATE_KEY.len()).any(|part| part == PEM_PRIVATE_KEY)
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
}
