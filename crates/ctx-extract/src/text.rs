//! Plain text in any common encoding, including source code and data.

use super::bounds::Bounds;
use super::format::SNIFF_BYTES;
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, extension};
use encoding_rs::{Encoding, WINDOWS_1252};

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: RawDocument::is_text, extract, needs_worker: false };

/// File extensions of source code and data, by media type.
const CODE_TYPES: &[(&str, &[&str])] = &[
    ("application/javascript", &["js", "mjs", "cjs", "jsx"]),
    ("application/json", &["json", "jsonl", "ndjson", "json5", "geojson"]),
    ("application/sql", &["sql"]),
    ("application/toml", &["toml"]),
    ("application/xml", &["xml", "xsd", "xsl", "xslt", "svg", "plist"]),
    ("application/yaml", &["yaml", "yml"]),
    ("text/css", &["css", "scss", "sass", "less"]),
    ("text/x-asm", &["asm", "s"]),
    ("text/x-c", &["c", "h"]),
    ("text/x-c++", &["cc", "cpp", "cxx", "hh", "hpp", "hxx", "ino"]),
    ("text/x-clojure", &["clj", "cljs", "edn"]),
    ("text/x-cmake", &["cmake"]),
    ("text/x-csharp", &["cs"]),
    ("text/x-dart", &["dart"]),
    ("text/x-diff", &["diff", "patch"]),
    ("text/x-elixir", &["ex", "exs"]),
    ("text/x-erlang", &["erl", "hrl"]),
    ("text/x-fsharp", &["fs", "fsx"]),
    ("text/x-go", &["go"]),
    ("text/x-graphql", &["graphql", "gql"]),
    ("text/x-groovy", &["groovy", "gradle"]),
    ("text/x-haskell", &["hs", "lhs"]),
    ("text/x-hcl", &["hcl", "tf", "tfvars"]),
    ("text/x-ini", &["ini", "cfg", "conf", "properties", "env"]),
    ("text/x-java", &["java"]),
    ("text/x-julia", &["jl"]),
    ("text/x-kotlin", &["kt", "kts"]),
    ("text/x-log", &["log"]),
    ("text/x-lua", &["lua", "luau"]),
    ("text/x-nix", &["nix"]),
    ("text/x-ocaml", &["ml", "mli"]),
    ("text/x-pascal", &["pas"]),
    ("text/x-perl", &["pl", "pm"]),
    ("text/x-php", &["php"]),
    ("text/x-powershell", &["ps1", "psm1"]),
    ("text/x-protobuf", &["proto"]),
    ("text/x-python", &["py", "pyi"]),
    ("text/x-r", &["r"]),
    ("text/x-ruby", &["rb", "erb"]),
    ("text/x-rust", &["rs"]),
    ("text/x-scala", &["scala", "sbt"]),
    ("text/x-shellscript", &["sh", "bash", "zsh", "fish"]),
    ("text/x-svelte", &["svelte"]),
    ("text/x-swift", &["swift"]),
    ("text/x-typescript", &["ts", "mts", "cts", "tsx"]),
    ("text/x-vb", &["vb", "vbs"]),
    ("text/x-vue", &["vue"]),
    ("text/x-zig", &["zig"]),
];

/// File extensions of source code and data.
pub(super) fn code_extensions() -> impl Iterator<Item = &'static str> {
    CODE_TYPES.iter().flat_map(|(_, extensions)| extensions.iter().copied())
}

/// File names without an extension that identify a language.
const CODE_NAMES: &[(&str, &str)] = &[
    ("dockerfile", "text/x-dockerfile"),
    ("containerfile", "text/x-dockerfile"),
    ("makefile", "text/x-makefile"),
    ("gnumakefile", "text/x-makefile"),
    ("justfile", "text/x-makefile"),
    ("cmakelists.txt", "text/x-cmake"),
    ("rakefile", "text/x-ruby"),
    ("gemfile", "text/x-ruby"),
    ("jenkinsfile", "text/x-groovy"),
];

/// Media types that are ignored for text, even if the source declares them.
const IGNORED_TYPES: &[&str] = &[
    "application/pdf",
    "application/zip",
    "application/vnd.",
    "application/epub",
    "image/",
    "audio/",
    "video/",
];

fn extract(raw: &RawDocument, _: &Bounds) -> Result<ExtractedText, ExtractError> {
    let body = decode(&raw.bytes, raw.charset.as_deref())?;
    let code = code_type(raw);
    let declared = raw
        .content_type
        .as_deref()
        .filter(|declared| !IGNORED_TYPES.iter().any(|kind| declared.starts_with(kind)));
    Ok(ExtractedText {
        body,
        structure: if code.is_some() { TextStructure::Code } else { TextStructure::Plain },
        content_type: code.or(declared).unwrap_or("text/plain").to_owned(),
        ..ExtractedText::default()
    })
}

/// The media type of source code or data, by the type that the source declares, else by the file name.
pub(super) fn code_type(raw: &RawDocument) -> Option<&str> {
    if let Some(declared) = raw.content_type.as_deref() {
        let normalized =
            declared.replace("text/x-yaml", "application/yaml").replace("text/xml", "application/xml");
        return CODE_TYPES.iter().map(|(known, _)| *known).find(|known| **known == normalized);
    }
    let name = raw.file_name().to_ascii_lowercase();
    let by_name = CODE_NAMES.iter().find(|(known, _)| *known == name).map(|(_, content_type)| *content_type);
    let extension = extension(&name);
    by_name.or_else(|| {
        let by_extension = CODE_TYPES.iter().find(|(_, extensions)| extensions.contains(&extension.as_str()));
        by_extension.map(|(content_type, _)| *content_type)
    })
}

/// Decodes text: by its byte-order mark, else the declared character set, else UTF-8, else Windows-1252, the usual
/// encoding of western files that are not UTF-8.
pub(super) fn decode(bytes: &[u8], charset: Option<&str>) -> Result<String, ExtractError> {
    if let Some((encoding, mark_length)) = Encoding::for_bom(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(&bytes[mark_length..]);
        return Ok(text.replace('\0', ""));
    }
    let head = &bytes[..bytes.len().min(SNIFF_BYTES)];
    if head.contains(&0) {
        return Err(ExtractError::NotText);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(text.replace('\0', ""));
    }
    if control_ratio(head) > 0.02 {
        return Err(ExtractError::NotText);
    }
    let declared = charset.and_then(|charset| Encoding::for_label(charset.as_bytes()));
    let encoding = declared.filter(|encoding| *encoding != encoding_rs::UTF_8).unwrap_or(WINDOWS_1252);
    Ok(encoding.decode_without_bom_handling(bytes).0.replace('\0', ""))
}

fn control_ratio(bytes: &[u8]) -> f64 {
    let controls = bytes.iter().filter(|byte| **byte < 0x20 && !b"\t\n\r\x0c\x1b".contains(byte)).count();
    controls as f64 / bytes.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::samples::extract;
    use super::*;

    #[test]
    fn common_encodings_become_text() {
        assert_eq!(decode("naïve".as_bytes(), None).unwrap(), "naïve");
        assert_eq!(decode(b"na\xefve caf\xe9", None).unwrap(), "naïve café");
        assert_eq!(decode(b"\xff\xfeh\0i\0", None).unwrap(), "hi");
        assert_eq!(decode(b"\xef\xbb\xbfhi", None).unwrap(), "hi");
        assert_eq!(decode(b"\xcf\xf0\xe8\xe2\xe5\xf2", Some("windows-1251")).unwrap(), "Привет");
        assert_eq!(decode(b"caf\xe9", Some("no-such-set")).unwrap(), "café");
        assert_eq!(decode(b"", None).unwrap(), "");
    }

    #[test]
    fn what_is_not_text_says_so() {
        let text = |bytes: &[u8]| {
            extract(RawDocument::new(bytes.to_vec(), "a.md", None)).map(|extracted| extracted.body)
        };
        assert_eq!(text(b"\x89PNG\r\n\x1a\n\0\0\0"), Err(ExtractError::NotText));
        assert_eq!(text(b"\xff\xd8\xff\xe0 no zero byte early on"), Err(ExtractError::NotText));
        assert_eq!(text(&[0x81, 0x02, 0x03, 0x04, 0x9d, 0x05]), Err(ExtractError::NotText));
    }

    #[test]
    fn code_and_data_are_lines_of_a_known_type() {
        let kind = |name: &str, content_type: Option<&str>| {
            let extracted = extract(RawDocument::new(b"x".to_vec(), name, content_type)).unwrap();
            (extracted.content_type, extracted.structure)
        };
        assert_eq!(kind("src/main.rs", None), ("text/x-rust".to_owned(), TextStructure::Code));
        assert_eq!(kind("a/Dockerfile", None), ("text/x-dockerfile".to_owned(), TextStructure::Code));
        assert_eq!(kind("a.yml", Some("text/plain")), ("application/yaml".to_owned(), TextStructure::Code));
        assert_eq!(
            kind("a", Some("text/xml; charset=utf-8")),
            ("application/xml".to_owned(), TextStructure::Code)
        );
        assert_eq!(kind("a.txt", None), ("text/plain".to_owned(), TextStructure::Plain));
        assert_eq!(kind("a", Some("application/pdf")), ("text/plain".to_owned(), TextStructure::Plain));
        assert_eq!(kind("a.rs", Some("text/calendar")), ("text/calendar".to_owned(), TextStructure::Plain));
    }
}
