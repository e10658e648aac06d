//! Frames: the binary format of messages on the pipe between parent and worker.
//!
//! A frame is a header of fixed size, a short name, a JSON text, and bytes. Both sides check the header against the
//! limits of its kind before they wait for the rest. Memory is allocated as bytes arrive, never by the length that a
//! header claims.

use serde::de::DeserializeOwned;

/// Size of the header: frame kind, length of the name, number, length of the JSON text, length of the bytes.
const HEADER_BYTES: usize = 1 + 1 + 4 + 4 + 4;

/// Maximum payload (name, JSON text and bytes) of the largest frames: a document, the answer of a large request.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Maximum payload of a greeting, which is a few numbers.
const GREETING_BYTES_MAX: usize = 1 << 10;

/// Maximum payload of a failure, which is a message for people.
const FAILURE_BYTES_MAX: usize = 256 << 10;

/// Maximum payload of one log line. The log of a whole job has a budget of its own.
pub const LOG_LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes that a job may log beyond its limit, for the message that the limit is reached.
const LOG_SLACK_BYTES: usize = 4 << 10;

/// Fixed cost of a log line besides its text.
const LOG_LINE_COST: usize = 16;

/// The log budget of a job, in bytes of frames.
pub fn log_budget(log_bytes: usize) -> usize {
    log_bytes.saturating_add(LOG_SLACK_BYTES)
}

/// Cost of a log line against [`log_budget`]: even empty lines cost something.
pub fn log_cost(line: &[u8]) -> usize {
    line.len() + LOG_LINE_COST
}

/// Maximum number of values in one JSON text. Texts with more than 127 nested arrays and objects are rejected too.
pub const VALUES_MAX: usize = 250_000;

/// A buffer that grew beyond this for a large frame is shrunk afterwards.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// The meaning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// To a worker: the greeting, with protocol version and memory limit.
    Hello = 1,
    /// To a worker: a job to do.
    Job = 2,
    /// To a worker: the answer to a question.
    Answer = 3,
    /// To a worker: the question failed. The name is the error code, the bytes are the message, the JSON text holds the
    /// other fields of the error.
    Refusal = 4,
    /// To a worker: a part of the input of the job that follows.
    Input = 5,
    /// From a worker: confined, and waiting for a job.
    Ready = 16,
    /// From a worker: a question of its job to the parent. The name is its subject.
    Question = 17,
    /// From a worker: a log line. The number is its level.
    Log = 18,
    /// From a worker: the job's result.
    Done = 19,
    /// From a worker: the error of the job.
    Failed = 20,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::Job,
            3 => Self::Answer,
            4 => Self::Refusal,
            5 => Self::Input,
            16 => Self::Ready,
            17 => Self::Question,
            18 => Self::Log,
            19 => Self::Done,
            20 => Self::Failed,
            _ => return None,
        })
    }

    fn payload_bytes_max(self) -> usize {
        match self {
            Self::Hello | Self::Ready => GREETING_BYTES_MAX,
            Self::Job | Self::Input | Self::Answer | Self::Question | Self::Done => PAYLOAD_BYTES_MAX,
            Self::Refusal | Self::Failed => FAILURE_BYTES_MAX,
            Self::Log => LOG_LINE_BYTES_MAX,
        }
    }
}

/// One message, in the buffer it arrived in or on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The meaning of the message.
    pub kind: FrameKind,
    /// The id of a question, or another small number that depends on the kind.
    pub number: u32,
    /// A short name.
    pub name: &'a str,
    /// A JSON text.
    pub json: &'a [u8],
    /// Binary content.
    pub bytes: &'a [u8],
}

/// A violation of the protocol by the other end of the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// The first byte is not a frame kind.
    #[error("a frame of an unknown kind")]
    Kind,
    /// The payload is larger than the frame kind allows.
    #[error("a frame that is too large")]
    Size,
    /// The name is not UTF-8.
    #[error("a frame name that is not UTF-8")]
    Name,
    /// The JSON text does not parse.
    #[error("invalid or too deeply nested JSON")]
    Json,
    /// The JSON text holds more than [`VALUES_MAX`] values.
    #[error("JSON with too many values")]
    Values,
    /// A frame of this kind is not allowed in this state.
    #[error("an unexpected frame")]
    Order,
    /// Too many questions are waiting for an answer.
    #[error("too many concurrent requests")]
    QuestionsOpen,
    /// The job has sent too many requests in total.
    #[error("too many requests")]
    Questions,
    /// The log budget is exceeded.
    #[error("more log output than allowed")]
    Logs,
}

impl<'a> Frame<'a> {
    /// A frame with only a kind and a number.
    pub fn new(kind: FrameKind, number: u32) -> Self {
        Self { kind, number, name: "", json: &[], bytes: &[] }
    }

    /// Appends the frame to `out`; fails if it is larger than its kind allows.
    pub fn write_to(&self, out: &mut Vec<u8>) -> Result<(), ProtocolViolation> {
        let payload = self.name.len() + self.json.len() + self.bytes.len();
        if payload > self.kind.payload_bytes_max() {
            return Err(ProtocolViolation::Size);
        }
        let name = u8::try_from(self.name.len()).map_err(|_| ProtocolViolation::Size)?;
        let length = |part: &[u8]| u32::try_from(part.len()).map_err(|_| ProtocolViolation::Size);
        let (json, bytes) = (length(self.json)?, length(self.bytes)?);
        out.reserve(HEADER_BYTES + payload);
        out.extend_from_slice(&[self.kind as u8, name]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&json.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(self.json);
        out.extend_from_slice(self.bytes);
        Ok(())
    }

    /// Parses the frame at the start of a buffer; returns it with its length, or `None` while it is incomplete.
    pub fn read_from(buffer: &'a [u8]) -> Result<Option<(Self, usize)>, ProtocolViolation> {
        let Some((header, rest)) = buffer.split_at_checked(HEADER_BYTES) else {
            // A wrong kind is reported at once: no further byte can make it valid.
            return match buffer.first().map(|byte| FrameKind::from_byte(*byte)) {
                Some(None) => Err(ProtocolViolation::Kind),
                _ => Ok(None),
            };
        };
        let kind = FrameKind::from_byte(header[0]).ok_or(ProtocolViolation::Kind)?;
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let lengths = [usize::from(header[1]), number(6) as usize, number(10) as usize];
        let payload = lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length));
        let payload =
            payload.filter(|sum| *sum <= kind.payload_bytes_max()).ok_or(ProtocolViolation::Size)?;
        let Some((payload, _)) = rest.split_at_checked(payload) else { return Ok(None) };
        let (name, payload_rest) = payload.split_at(lengths[0]);
        let (json, bytes) = payload_rest.split_at(lengths[1]);
        let name = std::str::from_utf8(name).map_err(|_| ProtocolViolation::Name)?;
        Ok(Some((Self { kind, number: number(2), name, json, bytes }, HEADER_BYTES + payload.len())))
    }

    /// Parses the JSON text.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ProtocolViolation> {
        if values_in(self.json) > VALUES_MAX {
            return Err(ProtocolViolation::Values);
        }
        serde_json::from_slice(self.json).map_err(|_| ProtocolViolation::Json)
    }
}

/// Counts the values in a JSON text, up to one more than [`VALUES_MAX`]. Bounded because a parsed value takes many
/// times the memory of its text. For invalid JSON the count does not matter, because parsing fails.
fn values_in(text: &[u8]) -> usize {
    let (mut values, mut in_string, mut escaped, mut after_opening) = (1_usize, false, false, false);
    for byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b',' | b'[' | b'{' => values += 1,
            // An empty array or object: the value counted at its opening bracket does not exist.
            b']' | b'}' if after_opening => values -= 1,
            b' ' | b'\t' | b'\n' | b'\r' => continue,
            _ => {}
        }
        if values > VALUES_MAX + 1 {
            break;
        }
        after_opening = matches!(byte, b'[' | b'{');
    }
    values
}

/// A buffer of received bytes, from which complete frames are taken.
#[derive(Debug, Default)]
pub struct IncomingFrames {
    buffer: Vec<u8>,
    consumed: usize,
}

impl IncomingFrames {
    /// The next frame and its length, or `None` while it is incomplete. The buffer is unchanged until [`Self::consume`].
    pub fn next_frame(&self) -> Result<Option<(Frame<'_>, usize)>, ProtocolViolation> {
        Frame::read_from(self.buffer.get(self.consumed..).unwrap_or_default())
    }

    /// Discards the first `length` bytes: a frame that has been handled.
    pub fn consume(&mut self, length: usize) {
        self.consumed += length;
        if self.consumed >= self.buffer.len() {
            self.consumed = 0;
            self.buffer.clear();
            self.buffer.shrink_to(BUFFER_BYTES_MAX);
        }
    }

    /// The buffer to append received bytes to, with spare capacity for at least `length`.
    pub fn spare_buffer(&mut self, length: usize) -> &mut Vec<u8> {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.reserve(length);
        &mut self.buffer
    }

    /// Whether every received byte was taken.
    pub fn is_empty(&self) -> bool {
        self.buffer.len() == self.consumed
    }
}

/// A buffer of frames to write.
#[derive(Debug, Default)]
pub struct OutgoingFrames {
    buffer: Vec<u8>,
    written: usize,
}

impl OutgoingFrames {
    /// Appends a frame.
    pub fn push(&mut self, frame: &Frame<'_>) -> Result<(), ProtocolViolation> {
        frame.write_to(&mut self.buffer)
    }

    /// The bytes still to be written.
    pub fn pending(&self) -> &[u8] {
        self.buffer.get(self.written..).unwrap_or_default()
    }

    /// Discards all bytes, when the reader is gone.
    pub fn clear(&mut self) {
        self.mark_written(self.buffer.len());
    }

    /// Discards the first `length` bytes, which were written.
    pub fn mark_written(&mut self, length: usize) {
        self.written += length;
        if self.written >= self.buffer.len() {
            self.written = 0;
            self.buffer.clear();
            self.buffer.shrink_to(BUFFER_BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Frame, FrameKind, HEADER_BYTES, IncomingFrames, PAYLOAD_BYTES_MAX, ProtocolViolation, VALUES_MAX,
        values_in,
    };
    use proptest::prelude::{Strategy, any, prop};
    use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};
    use serde_json::Value;

    const KINDS: [FrameKind; 10] = [
        FrameKind::Hello,
        FrameKind::Job,
        FrameKind::Answer,
        FrameKind::Refusal,
        FrameKind::Input,
        FrameKind::Ready,
        FrameKind::Question,
        FrameKind::Log,
        FrameKind::Done,
        FrameKind::Failed,
    ];

    fn json(text: &[u8]) -> Result<Value, ProtocolViolation> {
        Frame { json: text, ..Frame::new(FrameKind::Done, 0) }.parse()
    }

    proptest! {
        #[test]
        fn a_frame_reads_back_however_its_bytes_are_cut(
            kind in 0..KINDS.len(),
            number in any::<u32>(),
            name in "[a-z.]{0,40}",
            json in prop::collection::vec(any::<u8>(), 0..300),
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            cuts in prop::collection::vec(1..200_usize, 1..40),
        ) {
            let frame = Frame { kind: KINDS[kind], number, name: &name, json: &json, bytes: &bytes };
            let mut written = Vec::new();
            frame.write_to(&mut written).unwrap();
            frame.write_to(&mut written).unwrap();
            let (mut incoming, mut rest, mut read) = (IncomingFrames::default(), &written[..], 0);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                incoming.spare_buffer(now.len()).extend_from_slice(now);
                rest = later;
                while let Some((found, length)) = incoming.next_frame().unwrap() {
                    prop_assert_eq!(found, frame);
                    read += 1;
                    incoming.consume(length);
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(read, 2);
            prop_assert!(incoming.is_empty());
        }

        #[test]
        fn any_bytes_are_a_frame_or_a_breach_or_too_few(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            kind in 0..KINDS.len(),
            shaped in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if shaped && !bytes.is_empty() {
                bytes[0] = KINDS[kind] as u8;
            }
            if let Ok(Some((frame, length))) = Frame::read_from(&bytes) {
                prop_assert!(length <= bytes.len());
                let _: Result<Value, _> = frame.parse();
                let mut again = Vec::new();
                frame.write_to(&mut again).unwrap();
                prop_assert_eq!(&again[..], &bytes[..length]);
            }
        }

        #[test]
        fn a_stream_that_was_tampered_with_is_frames_a_breach_or_too_little(
            frames in prop::collection::vec((0..KINDS.len(), any::<u32>(), "[a-zé.]{0,20}", values(), 0..100_usize), 1..6),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..8),
            cuts in prop::collection::vec(1..100_usize, 1..20),
        ) {
            let mut stream = Vec::new();
            for (kind, number, name, json, bytes) in &frames {
                let (json, bytes) = (serde_json::to_vec(json).unwrap(), vec![b'x'; *bytes]);
                let frame = Frame { kind: KINDS[*kind], number: *number, name, json: &json, bytes: &bytes };
                let _ = frame.write_to(&mut stream);
            }
            for (place, byte, change) in &changes {
                let at = place.index(stream.len().max(1)).min(stream.len());
                match change {
                    0 => stream.truncate(at),
                    1 => stream.insert(at, *byte),
                    2 if at < stream.len() => drop(stream.remove(at)),
                    _ if at < stream.len() => stream[at] = *byte,
                    _ => {}
                }
            }
            // Read in arbitrary chunks, as from a pipe, up to the first protocol violation.
            let (mut incoming, mut rest, mut consumed, mut is_over) = (IncomingFrames::default(), &stream[..], 0, false);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                incoming.spare_buffer(now.len()).extend_from_slice(now);
                rest = later;
                loop {
                    let length = match incoming.next_frame() {
                        Ok(Some((frame, length))) => {
                            let _: Result<Value, _> = frame.parse();
                            let _: Result<crate::greeting::Greeting, _> = frame.parse();
                            prop_assert!(frame.name.len() + frame.json.len() + frame.bytes.len() + HEADER_BYTES == length);
                            length
                        }
                        Ok(None) => break,
                        Err(_) => {
                            is_over = true;
                            break;
                        }
                    };
                    consumed += length;
                    incoming.consume(length);
                }
                if is_over || rest.is_empty() {
                    break;
                }
            }
            prop_assert!(consumed <= stream.len());
        }

        #[test]
        fn the_count_of_values_is_exact(value in values()) {
            fn count(value: &Value) -> usize {
                1 + match value {
                    Value::Array(items) => items.iter().map(count).sum(),
                    Value::Object(fields) => fields.values().map(count).sum(),
                    _ => 0,
                }
            }
            prop_assert_eq!(values_in(&serde_json::to_vec(&value).unwrap()), count(&value));
            prop_assert_eq!(values_in(&serde_json::to_vec_pretty(&value).unwrap()), count(&value));
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<Option<bool>>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a\\[\\]{},:\"\\\\ ]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec(("[a-z,{\"]{0,3}", inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn a_text_of_too_many_values_is_a_breach() {
        let empty_lists = |count: usize| format!("[{}]", vec!["[]"; count].join(","));
        assert!(json(empty_lists(VALUES_MAX - 1).as_bytes()).is_ok());
        assert_eq!(json(empty_lists(VALUES_MAX).as_bytes()), Err(ProtocolViolation::Values));
    }

    #[test]
    fn a_claimed_size_beyond_the_bound_is_a_breach_before_it_arrives() {
        let mut header = [0_u8; HEADER_BYTES];
        header[0] = FrameKind::Question as u8;
        header[6..10].copy_from_slice(&(PAYLOAD_BYTES_MAX as u32 + 1).to_le_bytes());
        assert_eq!(Frame::read_from(&header), Err(ProtocolViolation::Size));
        header[6..].fill(0xff);
        assert_eq!(Frame::read_from(&header), Err(ProtocolViolation::Size));
    }

    #[test]
    fn a_kind_that_does_not_exist_is_a_breach_at_its_first_byte() {
        assert_eq!(Frame::read_from(b"H"), Err(ProtocolViolation::Kind));
        assert_eq!(Frame::read_from(b""), Ok(None));
    }

    #[test]
    fn a_text_deeper_than_127_is_a_breach() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(json(nested(127).as_bytes()).is_ok());
        assert_eq!(json(nested(128).as_bytes()), Err(ProtocolViolation::Json));
        assert_eq!(json(nested(100_000).as_bytes()), Err(ProtocolViolation::Json));
    }
}
