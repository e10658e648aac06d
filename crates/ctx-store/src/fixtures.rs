//! Databases in the formats of earlier versions: one SQL file per format in `tests/fixtures`.

use rusqlite::Connection;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// Loads the fixture of this format into a folder of its own. Panics if its schema differs from the one that `steps`
/// create: released migrations must never change.
pub(crate) fn load(name: &str, steps: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.sqlite"));
    let fixture = format!("{}/tests/fixtures/{name}-{}.sql", env!("CARGO_MANIFEST_DIR"), steps.len());
    let loaded = Connection::open(&path).unwrap();
    loaded.execute_batch(&fs::read_to_string(&fixture).expect(&fixture)).unwrap();
    let expected = Connection::open_in_memory().unwrap();
    steps.iter().for_each(|step| expected.execute_batch(step).unwrap());
    assert_eq!(schema(&loaded), schema(&expected), "{fixture}");
    (folder, path)
}

fn schema(connection: &Connection) -> Vec<(String, String)> {
    let mut statement = connection
        .prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}
