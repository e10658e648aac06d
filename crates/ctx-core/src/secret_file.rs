//! Deny-list of files that usually hold secrets. Sources index a file on the list only if `include_sensitive_globs`
//! matches it. Scripts can neither read nor list such files.
//!
//! The list consists of names, so a file is refused without being opened. Private keys are also recognised by their
//! content ([`is_private_key`]).

use std::path::{Component, Path};

/// Names of directories that are on the list with everything below them.
const DIRECTORY_NAMES: [&str; 12] = [
    ".aws",
    ".azure",
    ".ctx",
    ".docker",
    ".gcloud",
    ".git",
    ".gnupg",
    ".kube",
    ".password-store",
    ".ssh",
    ".svn",
    ".terraform.d",
];

/// Whole file names.
const FILE_NAMES: [&str; 43] = [
    ".authinfo",
    ".boto",
    ".dockercfg",
    ".dockerconfigjson",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".mcp.json",
    ".mylogin.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".terraformrc",
    ".vault-token",
    ".vault_pass",
    "_netrc",
    "application_default_credentials.json",
    "auth.json",
    "claude_desktop_config.json",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "credentials.yaml",
    "credentials.yml",
    "ctx.toml",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
    "kubeconfig",
    "mcp.json",
    "pgpass.conf",
    "rclone.conf",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "terraform.rc",
    "wp-config.php",
];

/// Prefixes of file names.
const NAME_PREFIXES: [&str; 1] = [".env"];

/// Prefix and suffix of file names: cloud credentials and service-account keys.
const NAME_AFFIXES: [(&str, &str); 4] = [
    ("credentials-", ".json"),
    ("credentials_", ".json"),
    ("service-account", ".json"),
    ("service_account", ".json"),
];

/// Suffixes of file names: environment files, credentials, private keys, key stores, VPN profiles, and the state and
/// variables of Terraform.
const NAME_SUFFIXES: [&str; 19] = [
    "-credentials.json",
    ".env",
    ".jks",
    ".kdb",
    ".kdbx",
    ".key",
    ".keystore",
    ".ovpn",
    ".p12",
    ".p8",
    ".pem",
    ".pfx",
    ".pk8",
    ".ppk",
    ".tfstate",
    ".tfstate.backup",
    ".tfvars",
    ".tfvars.json",
    "_credentials.json",
];

/// Exceptions to [`NAME_PREFIXES`]: templates that list environment variables without their values.
const TEMPLATE_NAMES: [&str; 3] = [".env.example", ".env.sample", ".env.template"];

/// Start of a PEM header.
const PEM_START: &[u8] = b"-----BEGIN ";
/// End of a PEM header, and start of the footer.
const PEM_DASHES: &[u8] = b"-----";
/// Part of the label of every private key, such as `RSA PRIVATE KEY`.
const PEM_PRIVATE_KEY: &[u8] = b"PRIVATE KEY";

/// Maximum bytes of a label and the dashes after it.
const LABEL_BYTES_MAX: usize = 64;

/// Minimum number of consecutive base64 characters that count as a key; elided examples such as `MIIE...` have fewer.
const KEY_CHARS_MIN: usize = 40;

/// Maximum lines and bytes after the PEM header that are searched for the key. Fields such as `Proc-Type` may precede
/// the key.
const SEARCHED_LINES_MAX: usize = 5;
const SEARCHED_BYTES_MAX: usize = 2 << 10;

/// Whether a file is on the deny-list: by its own name, or by that of a directory above it. Directories are compared
/// only with the directory names, so that documents in a folder `credentials/` are not refused. Case-insensitive, as
/// some file systems are.
pub fn is_secret_file(path: &Path) -> bool {
    let mut names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        _ => None,
    });
    let is_file = names.next().is_some_and(|name| matches_any_spelling(&name, is_denied));
    is_file || names.any(|name| matches_any_spelling(&name, |name| DIRECTORY_NAMES.contains(&name)))
}

/// Whether any component of a path is on the deny-list. Stricter than [`is_secret_file`]: directories are compared with
/// the file names as well.
pub fn has_secret_name(path: &Path) -> bool {
    path.components().any(|part| match part {
        Component::Normal(name) => matches_any_spelling(&name.to_string_lossy().to_lowercase(), is_denied),
        _ => false,
    })
}

/// Whether the file is a template that lists environment variables without their values, like `.env.example`.
pub fn is_example_environment(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    name.is_some_and(|name| TEMPLATE_NAMES.contains(&name.as_str()))
}

/// The deny-list as two lists of globs: the denied names, and the exceptions.
pub fn secret_file_globs() -> (Vec<String>, Vec<String>) {
    let directories = DIRECTORY_NAMES.iter().map(|name| format!("{name}/"));
    let names = FILE_NAMES.iter().map(|name| (*name).to_owned());
    let prefixes = NAME_PREFIXES.iter().map(|prefix| format!("{prefix}*"));
    let suffixes = NAME_SUFFIXES.iter().map(|suffix| format!("*{suffix}"));
    let affixes = NAME_AFFIXES.iter().map(|(prefix, suffix)| format!("{prefix}*{suffix}"));
    let listed = directories.chain(names).chain(prefixes).chain(suffixes).chain(affixes).collect();
    (listed, TEMPLATE_NAMES.map(str::to_owned).to_vec())
}

/// Whether the condition holds for the name, or for a part of it that Windows may treat as the file's name.
fn matches_any_spelling(name: &str, condition: impl Fn(&str) -> bool) -> bool {
    // On Windows `:` separates a file's name from a drive letter and from the name of an alternate data stream;
    // elsewhere it is a character of the name.
    std::iter::once(name).chain(name.split(':')).any(|name| {
        // Windows ignores trailing dots and spaces.
        condition(name.trim_end_matches(['.', ' ']))
    })
}

fn is_denied(name: &str) -> bool {
    let is_match = DIRECTORY_NAMES.contains(&name)
        || FILE_NAMES.contains(&name)
        || NAME_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || NAME_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || NAME_AFFIXES.iter().any(|(prefix, suffix)| name.starts_with(prefix) && name.ends_with(suffix));
    is_match && !TEMPLATE_NAMES.contains(&name)
}

/// Whether the content is or contains a PEM private key, whatever the file's name and format: on lines of its own, or
/// in a string in JSON or source code. A header without a key, as in a manual, counts only at the start of the content.
pub fn is_private_key(content: &[u8]) -> bool {
    let content = content.trim_ascii_start();
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| *byte == PEM_START[0]) {
        let is_first = rest.len() == content.len() && at == 0;
        rest = &rest[at..];
        let after_header = rest.strip_prefix(PEM_START).and_then(after_key_label);
        if after_header.is_some_and(|text| is_first || has_key(text)) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// The text after a PEM header, if the header's label is that of a private key. `text` begins with the label.
fn after_key_label(text: &[u8]) -> Option<&[u8]> {
    let label = &text[..text.len().min(LABEL_BYTES_MAX)];
    let end = label.windows(PEM_DASHES.len()).position(|part| part == PEM_DASHES)?;
    let is_key = label[..end].windows(PEM_PRIVATE_KEY.len()).any(|part| part == PEM_PRIVATE_KEY);
    is_key.then(|| &text[end + PEM_DASHES.len()..])
}

/// Whether the text after a PEM header has a long run of base64 characters, before the footer and within a few lines.
fn has_key(text: &[u8]) -> bool {
    let text = &text[..text.len().min(SEARCHED_BYTES_MAX)];
    let footer = text.windows(PEM_DASHES.len()).position(|part| part == PEM_DASHES);
    let lines = text[..footer.unwrap_or(text.len())].split(|byte| *byte == b'\n').take(SEARCHED_LINES_MAX);
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    lines.into_iter().any(|line| line.split(|byte| !is_base64(byte)).any(|run| run.len() >= KEY_CHARS_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_files_are_recognised_by_their_names() {
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
            "infra/terraform.tfstate",
            "infra/terraform.tfstate.backup",
            "prod.auto.tfvars",
            ".env.example.local",
            "service-account.json",
            "Service-Account-prod.json",
            "gcp/service_account_key.json",
            "credentials-prod.json",
            "my-credentials.json",
            "gcloud_credentials.json",
            "claude_desktop_config.json",
            ".mcp.json",
            "mcp.json",
            ".codex/auth.json",
        ] {
            assert!(is_secret_file(Path::new(path)), "{path}");
            assert!(has_secret_name(Path::new(path)), "{path}");
        }
        for path in [
            "data.json",
            "ctx.toml.md",
            "environment.md",
            "my.ctx/a",
            "gitignore",
            ".gitignore",
            "id_rsa.pub",
            "credentials.md",
            "credentials-policy.md",
            "service-accounts.md",
            "service-account.md",
            "oauth.json",
            "author.json",
            "keys.md",
            "tokens.txt",
            "secrets.md",
            "10:30 notes.md",
            ".env.example",
            "app/.ENV.sample",
            ".env.template",
            ".",
        ] {
            assert!(!is_secret_file(Path::new(path)), "{path}");
            assert!(!has_secret_name(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_folder_with_the_name_of_a_secret_file_may_hold_documents() {
        for path in ["docs/credentials/rotation.md", "talk.key/notes.md"] {
            assert!(!is_secret_file(Path::new(path)), "{path}");
            assert!(has_secret_name(Path::new(path)), "{path}");
        }
        assert!(is_secret_file(Path::new("docs/credentials")));
    }

    #[test]
    fn the_globs_cover_the_whole_list() {
        let (listed, exceptions) = secret_file_globs();
        let example = |glob: &String| glob.replace('*', "x").replace(".envx", ".env").replace('/', "/x");
        assert!(listed.iter().all(|glob| is_secret_file(Path::new(&example(glob)))), "{listed:?}");
        assert!(exceptions.iter().all(|name| is_example_environment(Path::new(name))), "{exceptions:?}");
        let affixes = NAME_PREFIXES.len() + NAME_SUFFIXES.len() + NAME_AFFIXES.len();
        assert_eq!(listed.len(), DIRECTORY_NAMES.len() + FILE_NAMES.len() + affixes);
    }

    #[test]
    fn a_private_key_is_recognised_by_its_header() {
        assert!(is_private_key(b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl"));
        assert!(is_private_key(b"\n  -----BEGIN PRIVATE KEY-----\n"));
        assert!(!is_private_key(b"-----BEGIN CERTIFICATE-----\nMII"));
        assert!(!is_private_key(b"A key begins with -----BEGIN PRIVATE KEY-----"));
        assert!(!is_private_key(b""));
    }

    #[test]
    fn a_private_key_is_recognised_after_other_content() {
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

    #[test]
    fn a_private_key_is_recognised_in_json_and_source_code() {
        let line = "A".repeat(64);
        for text in [
            format!(
                r#"{{"private_key": "-----BEGIN PRIVATE KEY-----\n{line}\n{line}\n-----END PRIVATE KEY-----\n"}}"#
            ),
            format!("KEY = \"-----BEGIN RSA PRIVATE KEY-----\\n\" +\n    \"{line}\\n\" +\n"),
            format!("key: |\n  -----BEGIN EC PRIVATE KEY-----\n  {line}\n"),
            format!("a -----BEGIN PRIVATE KEY----- {line} -----END PRIVATE KEY-----"),
        ] {
            assert!(is_private_key(text.as_bytes()), "{text}");
        }
        for text in [
            format!("a {{\"key\": \"-----BEGIN PRIVATE KEY-----\\n…\\n-----END PRIVATE KEY-----\"}}\n{line}"),
            format!("a\n-----BEGIN PUBLIC KEY-----\n{line}\n-----END PUBLIC KEY-----\n"),
            format!("a\n-----BEGIN PRIVATE KEY-----\n{}{line}", "Of lines.\n".repeat(6)),
        ] {
            assert!(!is_private_key(text.as_bytes()), "{text}");
        }
    }
}
