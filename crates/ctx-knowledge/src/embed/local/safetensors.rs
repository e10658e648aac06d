//! Reads tensors from a `.safetensors` file.
//!
//! The file consists of the header's length, a JSON header, and data. The header is untrusted: it is checked against
//! the size of the file, and memory is only allocated for data that the file contains.

use ctx_embed::vector::half_to_float;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Size of the field with the header's length.
const LENGTH_BYTES: u64 = 8;
/// Maximum size of a header: some hundred times that of a supported model.
const HEADER_BYTES_MAX: u64 = 4 << 20;
/// Key of the file's metadata among the tensors.
const METADATA: &str = "__metadata__";
/// Prefix of the tensor names of some models.
const PREFIX: &str = "bert.";
/// Bytes converted to numbers at a time.
const READ_BYTES: usize = 1 << 20;
/// Bytes hashed of each tensor to identify a model. A sample suffices: training changes all tensors of a model.
const SAMPLE_BYTES: u64 = 4 << 10;

/// An open `.safetensors` file.
pub(super) struct SafetensorsFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    header: Vec<u8>,
    tensors: BTreeMap<String, TensorInfo>,
}

/// Number format, shape and data range of a tensor.
#[derive(Deserialize)]
#[serde(expecting = "struct Entry")]
struct TensorInfo {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Format of floating-point numbers, by its name in the file.
#[derive(Clone, Copy)]
enum Dtype {
    F32,
    F16,
    Bf16,
}

impl Dtype {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "F32" => Some(Self::F32),
            "F16" => Some(Self::F16),
            "BF16" => Some(Self::Bf16),
            _ => None,
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    fn decode(self, bytes: &[u8], into: &mut Vec<f32>) {
        let pairs = bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair));
        match self {
            Self::F32 => {
                into.extend(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
            Self::F16 => into.extend(pairs.map(half_to_float)),
            Self::Bf16 => into.extend(pairs.map(|pair| f32::from_bits(u32::from(pair) << 16))),
        }
    }
}

impl SafetensorsFile {
    /// Reads the header; the error names the file.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let wrong = |problem: String| format!("{}: {problem}", path.display());
        let unreadable = |error: io::Error| wrong(error.to_string());
        let mut file = File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        let mut length = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut length).map_err(unreadable)?;
        let length = u64::from_le_bytes(length);
        let Some(data) = bytes.checked_sub(LENGTH_BYTES).and_then(|rest| rest.checked_sub(length)) else {
            return Err(wrong(format!("is truncated or not a safetensors file: a header of {length} bytes")));
        };
        if length > HEADER_BYTES_MAX {
            return Err(wrong(format!("its header has more than {HEADER_BYTES_MAX} bytes")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(unreadable)?;
        let tensors = parse_header(&header, data).map_err(wrong)?;
        Ok(Self { path: path.to_owned(), file, bytes, header, tensors })
    }

    /// The numbers of a tensor, which must have this shape; the error names the file.
    pub(super) fn read_tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let path = self.path.display().to_string();
        let wrong = |problem: &str| format!("{path}: `{name}` {problem}");
        let tensor = self.tensors.get(name).or_else(|| self.tensors.get(&format!("{PREFIX}{name}")));
        let tensor = tensor.ok_or_else(|| format!("{path}: has no tensor `{name}`"))?;
        if !tensor.shape.iter().copied().eq(shape.iter().map(|size| *size as u64)) {
            return Err(wrong(&format!("has the shape {:?}, where {shape:?} is needed", tensor.shape)));
        }
        let dtype = Dtype::parse(&tensor.dtype).ok_or_else(|| {
            wrong(&format!("has the type {}; supported are F32, F16 and BF16", tensor.dtype))
        })?;
        let (begin, end) = tensor.data_offsets;
        let numbers = tensor.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        if numbers.and_then(|numbers| numbers.checked_mul(dtype.bytes())) != Some(end - begin) {
            return Err(wrong(&format!("has {} bytes, which do not match its shape", end - begin)));
        }
        self.seek(begin).map_err(|error| wrong(&error.to_string()))?;
        let mut rest = end - begin;
        let mut values = Vec::with_capacity((rest / dtype.bytes()) as usize);
        let mut part = vec![0; READ_BYTES.min(rest as usize)];
        while rest > 0 {
            let part = &mut part[..READ_BYTES.min(rest as usize)];
            self.file.read_exact(part).map_err(|error| wrong(&error.to_string()))?;
            dtype.decode(part, &mut values);
            rest -= part.len() as u64;
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(wrong("has NaN or infinite values"));
        }
        Ok(values)
    }

    /// Hashes what identifies these tensors: file size, header, and a sample of each tensor.
    pub(super) fn hash_identity(&mut self, hasher: &mut blake3::Hasher) -> Result<(), String> {
        hasher.update(&self.bytes.to_le_bytes()).update(&self.header);
        let middles: Vec<(u64, u64)> =
            self.tensors.values().map(|tensor| sample(tensor.data_offsets)).collect();
        for (begin, length) in middles {
            let mut part = vec![0; length as usize];
            let read = self.seek(begin).and_then(|()| self.file.read_exact(&mut part));
            read.map_err(|error| format!("{}: {error}", self.path.display()))?;
            hasher.update(&part);
        }
        Ok(())
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        let from = LENGTH_BYTES + self.header.len() as u64 + offset;
        self.file.seek(SeekFrom::Start(from)).map(drop)
    }
}

/// The middle of a tensor: offset and length.
fn sample((begin, end): (u64, u64)) -> (u64, u64) {
    let length = (end - begin).min(SAMPLE_BYTES);
    (begin + (end - begin - length) / 2, length)
}

/// Parses a header; `data` is the size of the data after it, which all ranges must fit.
fn parse_header(header: &[u8], data: u64) -> Result<BTreeMap<String, TensorInfo>, String> {
    let read: Map<String, Value> =
        serde_json::from_slice(header).map_err(|error| format!("invalid header: {error}"))?;
    let mut tensors = BTreeMap::new();
    for (name, value) in read.into_iter().filter(|(name, _)| name != METADATA) {
        let tensor: TensorInfo =
            serde_json::from_value(value).map_err(|error| format!("invalid header: `{name}`: {error}"))?;
        tensors.insert(name, tensor);
    }
    let mut data_ranges: Vec<(&(u64, u64), &String)> =
        tensors.iter().map(|(name, tensor)| (&tensor.data_offsets, name)).collect();
    data_ranges.sort_unstable();
    let mut next_free = 0;
    for ((begin, end), name) in data_ranges {
        if *begin < next_free || end < begin || *end > data {
            return Err(format!(
                "`{name}` extends beyond the file or overlaps another tensor; the file may be truncated"
            ));
        }
        next_free = *end;
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn write_model(header: &str, data: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
        fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    /// The error of reading tensor `a`, of two numbers, from this file.
    fn problem(header: &str, data: &[u8]) -> String {
        let (_folder, path) = write_model(header, data);
        let read = SafetensorsFile::open(&path).and_then(|mut tensors| tensors.read_tensor("a", &[2]));
        read.unwrap_err().replace(&path.display().to_string(), "FILE")
    }

    #[test]
    fn tensors_of_every_dtype_are_read_with_and_without_prefix() {
        let header = r#"{"__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "bert.b": {"dtype": "F16", "shape": [1, 2], "data_offsets": [8, 12]},
            "c": {"dtype": "BF16", "shape": [2], "data_offsets": [12, 16]}}"#;
        let data = [0, 0, 128, 63, 0, 0, 0, 192, 0, 0x3C, 0, 0xC0, 128, 63, 0, 192];
        let (_folder, path) = write_model(header, &data);
        let mut tensors = SafetensorsFile::open(&path).unwrap();
        for (name, shape) in [("c", &[2][..]), ("b", &[1, 2]), ("a", &[2])] {
            assert_eq!(tensors.read_tensor(name, shape).unwrap(), [1.0, -2.0], "{name}");
        }
    }

    #[test]
    fn an_unusable_tensor_is_an_error() {
        let header = |dtype: &str, shape: &str, end: u64| {
            format!(r#"{{"a": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [0, {end}]}}}}"#)
        };
        let zeros = [0; 16];
        assert_eq!(problem("{}", &[]), "FILE: has no tensor `a`");
        assert_eq!(
            problem(&header("F32", "[3]", 12), &zeros),
            "FILE: `a` has the shape [3], where [2] is needed"
        );
        assert_eq!(
            problem(&header("F64", "[2]", 16), &zeros),
            "FILE: `a` has the type F64; supported are F32, F16 and BF16"
        );
        assert_eq!(
            problem(&header("F32", "[2]", 16), &zeros),
            "FILE: `a` has 16 bytes, which do not match its shape"
        );
        assert_eq!(problem(&header("F32", "[2]", 8), &[0xFF; 8]), "FILE: `a` has NaN or infinite values");
    }

    #[test]
    fn a_header_that_contradicts_the_file_is_refused() {
        let outside =
            "FILE: `a` extends beyond the file or overlaps another tensor; the file may be truncated";
        let header = |data_offsets: &str| {
            format!(r#"{{"a": {{"dtype": "F32", "shape": [2], "data_offsets": {data_offsets}}}}}"#)
        };
        assert_eq!(problem(&header("[0, 8]"), &[0; 7]), outside);
        assert_eq!(problem(&header("[8, 0]"), &[0; 8]), outside);
        assert_eq!(problem(&header("[0, 18446744073709551615]"), &[0; 8]), outside);
        assert!(problem(&header("[-1, 8]"), &[0; 8]).starts_with("FILE: invalid header: `a`"));
        assert!(problem("[", &[0; 8]).starts_with("FILE: invalid header: "));
        let overlapping = r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#;
        assert_eq!(problem(overlapping, &[0; 12]), outside);
    }

    #[test]
    fn a_length_that_the_file_does_not_have_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let problem = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            SafetensorsFile::open(&path).err().unwrap()
        };
        assert!(problem(&[]).contains("model.safetensors: "));
        assert!(problem(&[0xFF; 100]).contains("is truncated or not a safetensors file"));
        let long = HEADER_BYTES_MAX + 1;
        let bytes = [long.to_le_bytes().as_slice(), &vec![b' '; long as usize]].concat();
        assert!(problem(&bytes).ends_with("its header has more than 4194304 bytes"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_header_makes_it_read_beyond_the_file(
            dtype in "F32|F16|BF16|I64", shape in prop::collection::vec(any::<u64>(), 0..3),
            begin in prop_oneof![0_u64..20, any::<u64>()], end in prop_oneof![0_u64..20, any::<u64>()],
            data in 0_usize..20,
        ) {
            let tensor = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]});
            let (_folder, path) = write_model(&serde_json::json!({"a": tensor}).to_string(), &vec![0; data]);
            if let Ok(mut tensors) = SafetensorsFile::open(&path) {
                prop_assert!(begin <= end && end <= data as u64);
                prop_assert!(tensors.hash_identity(&mut blake3::Hasher::new()).is_ok());
                let expected: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
                if let Ok(numbers) = tensors.read_tensor("a", &expected) {
                    prop_assert!(numbers.len() * 2 <= data);
                }
            }
        }
    }
}
