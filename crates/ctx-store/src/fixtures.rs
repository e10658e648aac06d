//! Databases as earlier versions left them: text in `tests/fixtures`, a file for each format.

use rusqlite::Connection;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A database of this format in a folder of its own. Fails where the steps that lead to its format make other tables than
/// it has: steps that were released never change.
pub(crate) fn load(name: &str, steps: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.sqlite"));
    let fixture = format!("{}/tests/fixtures/{name}-{}.sql", env!("CARGO_MANIFEST_DIR"), steps.len());
    let loaded = Connection::open(&path).unwrap();
    loaded.execute_batch(&fs::read_to_string(&fixture).expect(&fixture)).unwrap();
    let made = Connection::open_in_memory().unwrap();
    steps.iter().for_each(|step| made.execute_batch(step).unwrap());
    assert_eq!(schema(&loaded), schema(&made), "{fixture}");
    (folder, path)
}

fn schema(connection: &Connection) -> Vec<(String, String)> {
    let mut statement = connection
        .prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}
