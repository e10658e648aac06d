//! Vector files: the quantised vectors of each model, mapped into memory so that a process can search as soon as it
//! starts.
//!
//! A file is a view: it records the store and the position in the change feed that it covers, and whoever reads it catches
//! up from there. A missing, damaged or foreign file is read from the store instead and written again. It is replaced as a
//! whole, under the lease of the indexes; readers need no lock.

use super::vector_matrix::{SEGMENTS_MAX, Segment, SegmentColumns, VectorMatrix};
use ctx_store::{ChangeCursor, Generation, Lease, ModelKey, Store, StoreError, VectorSequence};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tantivy::Directory;
use tantivy::directory::{MmapDirectory, OwnedBytes};
use uuid::Uuid;

/// Version of the format, part of the folder's name.
const FORMAT: u32 = 1;
const EXTENSION: &str = "vectors";
/// First bytes of a file: a name, and the length of the header.
const PREFIX: [u8; 8] = *b"ctxvec\0\n";
const PREFIX_BYTES: usize = PREFIX.len() + 4;
/// Maximum length of a header, which describes at most a few dozen segments.
const HEADER_BYTES_MAX: usize = 64 << 10;
const CHECKSUM_BYTES: usize = 4;
/// Bytes of a row apart from its codes: key, document, position and scale.
const COLUMN_BYTES: usize = 8 + 8 + 4 + 4;

/// The vector files of a store, in a folder next to it.
pub(super) struct VectorFiles {
    folder: PathBuf,
    store_id: Uuid,
}

/// The start of a file, as JSON.
#[derive(Serialize, Deserialize)]
struct FileHeader {
    store: Uuid,
    model: ModelKey,
    /// The store's generation when the file was written: a store with a lower one was restored from a copy.
    generation: Generation,
    /// The newest vector that has been read from the change feed.
    vectors: u64,
    /// Number of the rows that were in the store.
    live: usize,
    segments: Vec<SegmentHeader>,
}

#[derive(Serialize, Deserialize)]
struct SegmentHeader {
    dimensions: usize,
    rows: usize,
}

impl VectorFiles {
    /// The vector files of the store at `path`. Opens nothing yet.
    pub(super) fn next_to(path: &Path, store_id: Uuid) -> Self {
        Self { folder: path.with_extension(format!("vectors-v{FORMAT}")), store_id }
    }

    /// The vectors in the file of a model; `None` if there is no usable file.
    pub(super) fn load(
        &self,
        store: &dyn Store,
        model: ModelKey,
    ) -> Result<Option<VectorMatrix>, StoreError> {
        match self.read(model) {
            // The file is read before the store: it is never ahead of a store that only moves forward.
            Some((header, columns)) if !is_ahead(&header, store)? => Ok(decode(&header, &columns)),
            _ => Ok(None),
        }
    }

    /// The newest vector that the file of a model covers; `None` without a file of this store.
    pub(super) fn newest(&self, model: ModelKey) -> Option<VectorSequence> {
        self.header(model).map(|header| VectorSequence(header.vectors))
    }

    /// Writes the file of a model. Does nothing while another process writes an index of the store.
    pub(super) fn save(&self, store: &dyn Store, model: ModelKey, matrix: &VectorMatrix) -> io::Result<()> {
        let Ok(Some(_lease)) = store.lease(&Lease::Index) else { return Ok(()) };
        // Read after the vectors: the file may claim to be newer than its content, never to be older.
        let Ok(generation) = store.generation() else { return Ok(()) };
        let header = FileHeader {
            store: self.store_id,
            model,
            generation,
            vectors: matrix.cursor.vectors.0,
            live: matrix.live,
            segments: matrix.segments.iter().map(|segment| SegmentHeader::of(segment)).collect(),
        };
        let path = self.path(model);
        let unfinished = path.with_extension("new");
        ctx_store::create_file(&unfinished)?;
        let written =
            write(&unfinished, &header, &matrix.segments).and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            // Best effort: the next attempt overwrites it.
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Deletes the files that are ahead of their store, which means that the store was restored from a copy. Call this
    /// before vectors are stored: later sequence numbers would hide the difference.
    pub(super) fn discard_if_ahead(&self, store: &dyn Store) -> Result<(), StoreError> {
        for model in self.models() {
            if let Some(header) = self.header(model)
                && is_ahead(&header, store)?
            {
                self.remove(model);
            }
        }
        Ok(())
    }

    /// Deletes the files of all models but these.
    pub(super) fn retain(&self, keep: &[ModelKey]) {
        self.models().into_iter().filter(|model| !keep.contains(model)).for_each(|model| self.remove(model));
    }

    fn remove(&self, model: ModelKey) {
        let path = self.path(model);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "cannot remove {}", path.display());
        }
    }

    fn path(&self, model: ModelKey) -> PathBuf {
        self.folder.join(format!("{model}.{EXTENSION}"))
    }

    /// The models that have a file.
    fn models(&self) -> Vec<ModelKey> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let model = |path: PathBuf| path.file_stem()?.to_str()?.parse().ok();
        files.filter(|path| path.extension().is_some_and(|end| end == EXTENSION)).filter_map(model).collect()
    }

    /// The header of a model's file, without a check of the rest.
    fn header(&self, model: ModelKey) -> Option<FileHeader> {
        let mut start = Vec::new();
        let file = File::open(self.path(model)).ok()?;
        file.take((PREFIX_BYTES + HEADER_BYTES_MAX) as u64).read_to_end(&mut start).ok()?;
        Some(self.parse_header(&start, model)?.0)
    }

    /// The header and the columns of a model's file, if it is whole and belongs to this store.
    fn read(&self, model: ModelKey) -> Option<(FileHeader, OwnedBytes)> {
        let path = self.path(model);
        let file = MmapDirectory::open(&self.folder).ok()?.get_file_handle(&path).ok()?;
        let bytes = file.read_bytes(0..file.len()).ok()?;
        let (content, checksum) = bytes.as_slice().split_last_chunk::<CHECKSUM_BYTES>()?;
        let (header, start) = self.parse_header(content, model)?;
        if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
            tracing::debug!("{} is damaged", path.display());
            return None;
        }
        let end = content.len();
        Some((header, bytes.slice(start..end)))
    }

    /// The header at the start of a file, and its end; `None` if it is damaged or of another store.
    fn parse_header(&self, start: &[u8], model: ModelKey) -> Option<(FileHeader, usize)> {
        let (length, rest) = start.strip_prefix(&PREFIX)?.split_first_chunk::<4>()?;
        let length =
            usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= HEADER_BYTES_MAX)?;
        let header: FileHeader = serde_json::from_slice(rest.get(..length)?).ok()?;
        (header.store == self.store_id && header.model == model).then_some((header, PREFIX_BYTES + length))
    }
}

impl SegmentHeader {
    fn of(segment: &Segment) -> Self {
        Self { dimensions: segment.columns.dimensions, rows: segment.columns.keys.len() }
    }
}

/// Whether the store was restored from a copy that is older than the file.
fn is_ahead(header: &FileHeader, store: &dyn Store) -> Result<bool, StoreError> {
    Ok(header.generation > store.generation()?
        || VectorSequence(header.vectors) > store.vector_state(header.model)?.last_assigned)
}

/// The vectors of a file; `None` if its length does not fit its header.
fn decode(header: &FileHeader, columns: &OwnedBytes) -> Option<VectorMatrix> {
    let mut segments = Vec::with_capacity(header.segments.len().min(SEGMENTS_MAX));
    let mut start = 0_usize;
    for SegmentHeader { dimensions, rows } in &header.segments {
        let bytes = rows.checked_mul(dimensions.checked_add(COLUMN_BYTES)?)?;
        let end = start.checked_add(bytes)?;
        let segment = columns.as_slice().get(start..end)?;
        let (keys, rest) = segment.split_at_checked(rows * 8)?;
        let (documents, rest) = rest.split_at_checked(rows * 8)?;
        let (positions, rest) = rest.split_at_checked(rows * 4)?;
        let (scales, codes) = rest.split_at_checked(rows * 4)?;
        let keys = keys.as_chunks().0.iter().map(|key| VectorSequence(u64::from_le_bytes(*key)));
        let documents = documents.as_chunks().0.iter().map(|document| u64::from_le_bytes(*document));
        let positions = positions.as_chunks().0.iter().map(|position| u32::from_le_bytes(*position));
        let scales = scales.as_chunks().0.iter().map(|scale| f32::from_le_bytes(*scale));
        let columns_of_segment = SegmentColumns {
            dimensions: *dimensions,
            keys: keys.collect(),
            places: documents.zip(positions).collect(),
            scales: scales.collect(),
        };
        segments.push(Arc::new(Segment::new(columns_of_segment, columns.slice(end - codes.len()..end))));
        start = end;
    }
    let rows = header.segments.iter().map(|segment| segment.rows).sum();
    let cursor = ChangeCursor { vectors: VectorSequence(header.vectors), ..ChangeCursor::START };
    (start == columns.len()).then_some(VectorMatrix {
        cursor,
        rows,
        live: header.live,
        saved_rows: rows,
        segments,
    })
}

fn write(path: &Path, header: &FileHeader, segments: &[Arc<Segment>]) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    let mut out = ChecksumWriter { file: BufWriter::new(file), checksum: crc32fast::Hasher::new() };
    let header = serde_json::to_vec(header)?;
    let length = u32::try_from(header.len()).map_err(io::Error::other)?;
    out.write(&PREFIX)?;
    out.write(&length.to_le_bytes())?;
    out.write(&header)?;
    for Segment { columns, codes, .. } in segments.iter().map(|segment| &**segment) {
        columns.keys.iter().try_for_each(|key| out.write(&key.0.to_le_bytes()))?;
        columns.places.iter().try_for_each(|place| out.write(&place.0.to_le_bytes()))?;
        columns.places.iter().try_for_each(|place| out.write(&place.1.to_le_bytes()))?;
        columns.scales.iter().try_for_each(|scale| out.write(&scale.to_le_bytes()))?;
        out.write(codes)?;
    }
    let checksum = out.checksum.finalize();
    // Not synced to disk: a file that a power failure cuts off fails its checksum.
    out.file.write_all(&checksum.to_le_bytes())?;
    out.file.flush()
}

/// Writes to a file and computes the checksum of what was written.
struct ChecksumWriter {
    file: BufWriter<File>,
    checksum: crc32fast::Hasher,
}

impl ChecksumWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        self.file.write_all(bytes)
    }
}
