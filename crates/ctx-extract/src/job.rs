//! The protocol between a process and its extraction worker: a JSON header and bytes in each direction.

use super::{ExtractError, ExtractLimits, ExtractedText, RawDocument, extract};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The header of a job: a document without its bytes, and the limits.
#[derive(Serialize, Deserialize)]
struct JobHeader<D> {
    document: D,
    limits: ExtractLimits,
}

/// The header of a reply. The text itself is sent as bytes.
pub type ReplyHeader = Result<ExtractedText, ExtractError>;

/// Encodes the header of a job. The bytes of the job are [`RawDocument::bytes`].
pub fn encode_job(document: &RawDocument, limits: ExtractLimits) -> Result<Vec<u8>, ExtractError> {
    let header = serde_json::to_vec(&JobHeader { document, limits });
    header.map_err(|error| ExtractError::Failed(format!("cannot serialize the job: {error}")))
}

/// Runs a job in the worker; returns the header and the bytes of the reply.
pub fn run_job(header: &[u8], bytes: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let mut extracted = match serde_json::from_slice::<JobHeader<RawDocument>>(header) {
        Ok(JobHeader { document, limits }) => {
            extract(RawDocument { bytes, ..document }, limits, Arc::new(|| false))
        }
        Err(error) => Err(ExtractError::NotNow(format!("cannot parse the job: {error}"))),
    };
    let body = extracted.as_mut().map(|text| std::mem::take(&mut text.body)).unwrap_or_default();
    let header = serde_json::to_vec(&extracted).unwrap_or_default();
    (header, body.into_bytes())
}

/// Decodes a reply, which is not trusted.
pub fn decode_reply(header: ReplyHeader, body: Vec<u8>) -> Result<ExtractedText, ExtractError> {
    let extracted = header?;
    match String::from_utf8(body) {
        Ok(body) => Ok(ExtractedText { body, ..extracted }),
        Err(_) => {
            Err(ExtractError::Failed("the extraction worker returned text that is not UTF-8".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{STACK_BYTES, samples};
    use super::*;

    #[test]
    fn a_text_is_unchanged_by_the_worker_protocol() {
        for (name, bytes) in [
            ("sample.docx", samples::sample("sample.docx")),
            ("sample.pdf", samples::sample("sample.pdf")),
            ("locked.pdf", samples::sample("locked.pdf")),
            ("a.html", b"<title>A</title><meta name=author content=B><p>c".to_vec()),
            ("a.png", b"\x89PNG".to_vec()),
        ] {
            let raw = || RawDocument::new(bytes.clone(), name, None);
            let job = encode_job(&raw(), ExtractLimits::DEFAULT).unwrap();
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let content = raw().bytes().to_vec();
            let (header, body) = thread.spawn(move || run_job(&job, content)).unwrap().join().unwrap();
            let crossed = decode_reply(serde_json::from_slice(&header).unwrap(), body);
            assert_eq!(crossed, samples::extract(raw()), "{name}");
        }
        let document = RawDocument::from_text("a\0b", "note", Some("text/x-note"));
        let job = encode_job(&document, ExtractLimits::DEFAULT).unwrap();
        let (header, body) = run_job(&job, document.bytes().to_vec());
        let crossed = decode_reply(serde_json::from_slice(&header).unwrap(), body).unwrap();
        assert_eq!((&*crossed.body, &*crossed.content_type), ("ab", "text/x-note"));
    }

    #[test]
    fn what_is_not_a_job_or_a_reply_is_an_error() {
        let (header, body) = run_job(b"{", Vec::new());
        let reply: ReplyHeader = serde_json::from_slice(&header).unwrap();
        assert!(matches!(decode_reply(reply, body), Err(ExtractError::NotNow(_))));
        let reply = decode_reply(Ok(ExtractedText::default()), vec![0xff]);
        assert!(matches!(reply, Err(ExtractError::Failed(_))));
    }
}
