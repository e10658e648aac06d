//! The files of a source, in pages: documents and skipped files, merged by name.

use super::SqliteStore;
use super::read::uuid;
use crate::documents::DocumentId;
use crate::error::StoreError;
use crate::files::{FilePosition, FileState, SourceFile};
use ctx_core::SourceName;
use jiff::Timestamp;
use rusqlite::{Connection, Row, ToSql, params};

impl SqliteStore {
    pub(super) fn list_files(
        &self,
        source: &SourceName,
        after: Option<&FilePosition>,
        limit: usize,
    ) -> Result<Vec<SourceFile>, StoreError> {
        let source = source.to_string();
        self.read(|connection| {
            // One snapshot for both tables.
            let snapshot = connection.unchecked_transaction()?;
            let is_after_names = after.is_some_and(|after| after.source_id.is_none());
            let mut files = match is_after_names {
                true => Vec::new(),
                false => named_files(&snapshot, &source, after, limit)?,
            };
            let room = limit - files.len();
            if room > 0 {
                files.extend(nameless_files(&snapshot, &source, after.filter(|_| is_after_names), room)?);
            }
            Ok(files)
        })
    }

    pub(super) fn name_skipped_files(&self, names: &[(DocumentId, String)]) -> Result<(), StoreError> {
        self.write(|transaction| {
            let mut name = transaction.prepare_cached(
                "UPDATE passed_over SET source_id = ?2 WHERE id = ?1 AND source_id IS NULL",
            )?;
            names.iter().try_for_each(|(id, source_id)| {
                name.execute(params![id.as_bytes().as_slice(), source_id]).map(drop)
            })
        })
    }
}

/// Files with names: a page of documents and a page of skipped files are read, and the first `limit` of both returned.
fn named_files(
    connection: &Connection,
    source: &str,
    after: Option<&FilePosition>,
    limit: usize,
) -> rusqlite::Result<Vec<SourceFile>> {
    let name = after.and_then(|after| after.source_id.as_deref()).unwrap_or_default();
    // The empty string is a valid name, so the first page includes it.
    let (comparison, id) = match after {
        Some(after) => (">", after.id.as_bytes().as_slice()),
        None => (">=", [].as_slice()),
    };
    let mut files = query(
        connection,
        &format!(
            "SELECT documents.id, documents.source_id, documents.read_at, documents.fingerprint,
               passed_over.fingerprint, passed_over.reason, passed_over.read_at
             FROM documents LEFT JOIN passed_over ON passed_over.id = documents.id
             WHERE documents.source = ?1 AND documents.source_id {comparison} ?2
             ORDER BY documents.source_id LIMIT ?3"
        ),
        params![source, name, limit],
        stored_file,
    )?;
    files.extend(query(
        connection,
        "SELECT id, source_id, read_at, reason FROM passed_over
         WHERE source = ?1 AND (source_id, id) > (?2, ?3)
           AND NOT EXISTS (SELECT 1 FROM documents WHERE documents.id = passed_over.id)
         ORDER BY source_id, id LIMIT ?4",
        params![source, name, id, limit],
        skipped_file,
    )?);
    files.sort_by(|a, b| a.position().sort_key().cmp(&b.position().sort_key()));
    files.truncate(limit);
    Ok(files)
}

/// Files without names: skipped by an earlier version, which did not store names.
fn nameless_files(
    connection: &Connection,
    source: &str,
    after: Option<&FilePosition>,
    limit: usize,
) -> rusqlite::Result<Vec<SourceFile>> {
    let id = after.map_or([].as_slice(), |after| after.id.as_bytes().as_slice());
    query(
        connection,
        "SELECT id, source_id, read_at, reason FROM passed_over
         WHERE source = ?1 AND source_id IS NULL AND id > ?2
           AND NOT EXISTS (SELECT 1 FROM documents WHERE documents.id = passed_over.id)
         ORDER BY id LIMIT ?3",
        params![source, id, limit],
        skipped_file,
    )
}

fn query(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn ToSql],
    file: fn(&Row<'_>) -> rusqlite::Result<SourceFile>,
) -> rusqlite::Result<Vec<SourceFile>> {
    connection.prepare_cached(sql)?.query_map(parameters, file)?.collect()
}

fn stored_file(row: &Row<'_>) -> rusqlite::Result<SourceFile> {
    let (fingerprint, noted_fingerprint): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
    let reason: Option<String> = row.get(5)?;
    let has_note = noted_fingerprint.is_some();
    let note = noted_fingerprint.as_deref().map(|noted_fingerprint| (noted_fingerprint, reason));
    Ok(SourceFile {
        id: uuid(row, 0)?,
        source_id: row.get(1)?,
        read_at: read_time(row, if has_note { 6 } else { 2 })?,
        state: FileState::for_stored(fingerprint.as_deref(), note),
    })
}

fn skipped_file(row: &Row<'_>) -> rusqlite::Result<SourceFile> {
    Ok(SourceFile {
        id: uuid(row, 0)?,
        source_id: row.get(1)?,
        read_at: read_time(row, 2)?,
        state: FileState::for_skipped(row.get(3)?),
    })
}

fn read_time(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Timestamp>> {
    let milliseconds: Option<i64> = row.get(index)?;
    Ok(milliseconds.and_then(|at| Timestamp::from_millisecond(at).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{DocumentStore, Mutation};
    use uuid::Uuid;

    #[test]
    fn skipped_files_of_an_earlier_version_are_listed_without_names_until_they_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("store.sqlite")).unwrap();
        let source = SourceName::new("filesystem", "notes");
        let id = |number: u128| Uuid::from_u128(number);
        let skip = |number: u128| Mutation::SkipEmpty {
            id: id(number),
            source: source.clone(),
            source_id: format!("{number}.png"),
            fingerprint: "f".to_owned(),
        };
        store.apply(&(0..4).map(skip).collect::<Vec<_>>()).unwrap();
        store
            .write(|transaction| {
                transaction.execute(
                    "UPDATE passed_over SET source_id = NULL, read_at = NULL WHERE id <> ?1",
                    [id(2).as_bytes().as_slice()],
                )
            })
            .unwrap();
        let list = |limit: usize| {
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let page = store.files(&source, after.as_ref(), limit).unwrap();
                assert!(page.len() <= limit);
                let Some(last) = page.last() else { return all };
                after = Some(last.position());
                all.extend(page.into_iter().map(|file| (file.source_id, file.id, file.read_at.is_some())));
            }
        };
        let named = |number: u128, is_dated| (Some(format!("{number}.png")), id(number), is_dated);
        let expected = vec![named(2, true), (None, id(0), false), (None, id(1), false), (None, id(3), false)];
        assert!((1..6).all(|limit| list(limit) == expected));
        assert!(!store.stamps(&[id(0)]).unwrap()[0].skipped.as_ref().unwrap().is_named);

        let other = (id(2), "other.png".to_owned());
        let names: Vec<_> = [3, 0].map(|number| (id(number), format!("{number}.png"))).into();
        store.name_skipped(&[names, vec![other, (id(9), "unknown.png".to_owned())]].concat()).unwrap();
        let expected = vec![named(0, false), named(2, true), named(3, false), (None, id(1), false)];
        assert!((1..6).all(|limit| list(limit) == expected));
    }
}
