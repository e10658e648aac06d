//! Common parts of office packages: relationships between parts, and document properties.

use super::archive::Archive;
use super::composer::one_line;
use super::front_matter::parse_timestamp;
use super::xml::{XmlEvent, XmlReader, attribute};
use super::{ExtractError, ExtractedText};

/// Default titles that programs give to untitled documents.
const PLACEHOLDER_TITLES: &[&str] = &["Word Document", "PowerPoint Presentation"];

/// A relationship from one part to another.
pub(super) struct Relationship {
    pub(super) id: String,
    /// The last segment of its type: `slide`.
    pub(super) kind: String,
    /// The name of the target member.
    pub(super) target: String,
}

/// The relationships of a part; an empty name stands for the package itself.
pub(super) fn relationships(
    archive: &mut Archive<'_>,
    part: &str,
) -> Result<Vec<Relationship>, ExtractError> {
    let (folder, file) = part.rsplit_once('/').unwrap_or(("", part));
    let name = resolve_path(folder, &format!("_rels/{file}.rels"));
    let Some(text) = archive.text(&name)? else { return Ok(Vec::new()) };
    let mut xml = XmlReader::new(&text, &name, archive.bounds());
    let mut relationships = Vec::new();
    loop {
        match xml.next()? {
            XmlEvent::Start(tag) if tag.local_name().into_inner() == "Relationship" => {
                let get = |name| attribute(&tag, name).unwrap_or_default();
                let external = get("TargetMode").eq_ignore_ascii_case("external");
                if !external && relationships.len() < archive.bounds().limits.members {
                    relationships.push(Relationship {
                        id: get("Id"),
                        kind: get("Type").rsplit('/').next().unwrap_or_default().to_owned(),
                        target: resolve_path(folder, &get("Target")),
                    });
                }
            }
            XmlEvent::Eof => return Ok(relationships),
            _ => {}
        }
    }
}

/// The main part of a package; `default` if it declares none that exists.
pub(super) fn main_part(archive: &mut Archive<'_>, default: &str) -> Result<String, ExtractError> {
    let relationships = relationships(archive, "")?;
    let main = relationships.into_iter().find(|relationship| relationship.kind == "officeDocument");
    Ok(main
        .map(|relationship| relationship.target)
        .filter(|name| archive.has(name))
        .unwrap_or_else(|| default.to_owned()))
}

/// Resolves a name relative to a folder; never leads above the root.
pub(super) fn resolve_path(folder: &str, name: &str) -> String {
    let from = if name.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in from.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Reads title, author, tags and dates from a properties part.
pub(super) fn read_properties(
    archive: &mut Archive<'_>,
    name: &str,
    extracted: &mut ExtractedText,
) -> Result<(), ExtractError> {
    let Some(text) = archive.text(name)? else { return Ok(()) };
    let mut xml = XmlReader::new(&text, name, archive.bounds());
    loop {
        let tag = match xml.next()? {
            XmlEvent::Start(tag) => tag,
            XmlEvent::Eof => return Ok(()),
            _ => continue,
        };
        let key = tag.local_name().into_inner();
        if !matches!(
            key,
            "title"
                | "creator"
                | "initial-creator"
                | "keywords"
                | "keyword"
                | "description"
                | "subject"
                | "created"
                | "creation-date"
                | "modified"
                | "date"
        ) {
            continue;
        }
        let value = one_line(&xml.text()?);
        if value.is_empty() {
            continue;
        }
        match key {
            "title" if PLACEHOLDER_TITLES.contains(&&*value) => {}
            "title" => extracted.title = Some(value),
            // If both exist, `initial-creator` is the author and `creator` saved the document last.
            "initial-creator" => extracted.author = Some(value),
            "creator" => drop(extracted.author.get_or_insert(value)),
            "keywords" | "keyword" => {
                let tags = value.split([',', ';']).map(str::trim).filter(|tag| !tag.is_empty());
                extracted.tags.extend(tags.map(str::to_owned));
            }
            "created" | "creation-date" => extracted.created_at = parse_timestamp(&value),
            "modified" | "date" => extracted.updated_at = parse_timestamp(&value),
            key => drop(extracted.metadata.insert(key.to_owned(), value.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_and_stay_inside() {
        assert_eq!(resolve_path("ppt/slides", "../media/a.png"), "ppt/media/a.png");
        assert_eq!(resolve_path("ppt", "/word/a.xml"), "word/a.xml");
        assert_eq!(resolve_path("a", "../../../b"), "b");
    }
}
