//! Loads a PDF with limits on time and objects.
//!
//! lopdf parses the whole file and cannot be cancelled. It calls a filter function for every object, which checks the
//! deadline and the limits.

use super::super::bounds::Bounds;
use super::super::{ExtractError, failed};
use lopdf::{Document, Error, LoadOptions, Object, ObjectId, Stream};
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Maximum objects in one document; the largest real ones have a few hundred thousand.
const OBJECTS_MAX: usize = 1_000_000;
/// Maximum unpacked bytes of one object stream.
const OBJECT_STREAM_BYTES_MAX: usize = 8 << 20;
/// Maximum objects in one object stream.
const OBJECT_STREAM_OBJECTS_MAX: usize = 100_000;

thread_local! {
    /// The load in progress on this thread: the filter is a plain function and has no other way to reach it.
    static CURRENT_LOAD: RefCell<Option<LoadState>> = const { RefCell::new(None) };
}

struct LoadState {
    bounds: Bounds,
    seen: HashSet<ObjectId>,
}

/// The panic payload that carries the error out of lopdf.
struct LoadAbort(ExtractError);

pub(super) fn load(bytes: &[u8], bounds: &Bounds) -> Result<Document, ExtractError> {
    let options = LoadOptions {
        filter: Some(filter_object),
        max_decompressed_size: Some(OBJECT_STREAM_BYTES_MAX),
        ..LoadOptions::default()
    };
    CURRENT_LOAD.set(Some(LoadState { bounds: bounds.clone(), seen: HashSet::new() }));
    let loaded = catch_unwind(AssertUnwindSafe(|| Document::load_mem_with_options(bytes, options)));
    CURRENT_LOAD.set(None);
    match loaded {
        Ok(Ok(document)) => Ok(document),
        Ok(Err(Error::InvalidPassword | Error::Decryption(_))) => failed("it is protected by a password"),
        Ok(Err(error)) => failed(format!("it is damaged: {error}")),
        Err(payload) => match payload.downcast::<LoadAbort>() {
            Ok(stop) => Err(stop.0),
            Err(_) => failed("it is damaged: the reader panicked"),
        },
    }
}

/// The filter of lopdf: drops objects without text, and stops the load at a limit.
fn filter_object(id: ObjectId, object: &mut Object) -> Option<(ObjectId, Object)> {
    let stop = CURRENT_LOAD.with_borrow_mut(|load| {
        let load = load.as_mut()?;
        // An object listed several times is parsed each time.
        let repeated = !load.seen.insert(id);
        if load.bounds.is_late() {
            return Some(ExtractError::too_slow(load.bounds.limits.time));
        }
        let too_many = load.seen.len() > OBJECTS_MAX || repeated && load.seen.len() > OBJECTS_MAX / 2;
        too_many.then(|| ExtractError::Failed(format!("it has more than {OBJECTS_MAX} objects")))
    });
    if let Some(reason) = stop {
        resume_unwind(Box::new(LoadAbort(reason)));
    }
    let keep = match &*object {
        Object::Stream(stream) if stream.dict.has_type(b"ObjStm") => has_increasing_offsets(stream),
        Object::Stream(stream) => !is_picture_or_font(stream),
        _ => true,
    };
    keep.then(|| (id, object.clone()))
}

fn is_picture_or_font(stream: &Stream) -> bool {
    let subtype = stream.dict.get(b"Subtype").and_then(Object::as_name).unwrap_or_default();
    matches!(subtype, b"Image" | b"Type1C" | b"CIDFontType0C" | b"OpenType") || stream.dict.has(b"Length1")
}

/// Whether the objects of a stream have increasing offsets: many ids for the offset of one large object would make many
/// copies of it.
fn has_increasing_offsets(stream: &Stream) -> bool {
    let Ok(content) = stream.get_plain_content_with_limit(OBJECT_STREAM_BYTES_MAX) else {
        // Encrypted streams cannot be checked here; lopdf reports what is wrong with them.
        return true;
    };
    let first = stream.dict.get(b"First").and_then(Object::as_i64).unwrap_or(0);
    let index = usize::try_from(first).ok().and_then(|first| content.get(..first)).unwrap_or_default();
    let numbers = index.split(u8::is_ascii_whitespace).filter(|number| !number.is_empty());
    let mut offsets = numbers.skip(1).step_by(2).map(|offset| {
        std::str::from_utf8(offset).ok().and_then(|offset| offset.parse::<u32>().ok()).unwrap_or(0)
    });
    let mut last = None;
    let mut count = 0;
    offsets.all(|offset| {
        count += 1;
        let is_new = last.is_none_or(|last| offset > last);
        last = Some(offset);
        is_new && count <= OBJECT_STREAM_OBJECTS_MAX
    })
}
