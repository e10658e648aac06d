//! Validates and compiles the source of scripts, and caches the bytecode.

use crate::syntax::{mark_promise_calls, may_use_promises};
use crate::vm::explain;
use mlua::chunk::Compiler;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Maximum size of a script's source.
pub(crate) const SOURCE_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of cached scripts.
const CACHED_MAX: usize = 64;
/// Maximum total size of the sources of cached scripts.
const CACHED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A cache of compiled scripts, by source and everything else that the bytecode depends on.
#[derive(Default)]
pub(super) struct BytecodeCache {
    by_source: HashMap<Rc<[u8]>, Rc<[u8]>>,
    oldest_first: VecDeque<Rc<[u8]>>,
    bytes: usize,
}

impl BytecodeCache {
    /// Compiles a script, unless its bytecode is cached. The bytecode depends on `providers`, the providers
    /// that the script sees as globals, where calls of them may return promises.
    pub(super) fn get(
        &mut self,
        chunk_name: &str,
        text: &[u8],
        providers: &[&str],
    ) -> Result<Rc<[u8]>, String> {
        check_source(chunk_name, text)?;
        let key = key(text, providers);
        if let Some(bytecode) = self.by_source.get(&*key) {
            return Ok(bytecode.clone());
        }
        let bytecode: Rc<[u8]> = compile(chunk_name, &mark_promise_calls(text, providers))?.into();
        let text: Rc<[u8]> = key.into();
        self.bytes += text.len();
        self.by_source.insert(text.clone(), bytecode.clone());
        self.oldest_first.push_back(text);
        while self.oldest_first.len() > CACHED_MAX || self.bytes > CACHED_BYTES_MAX {
            let Some(oldest) = self.oldest_first.pop_front() else { break };
            self.bytes -= oldest.len();
            self.by_source.remove(&oldest);
        }
        Ok(bytecode)
    }
}

/// The cache key: the source, with `providers` where the bytecode depends on them. No valid source contains a
/// zero byte.
fn key<'s>(text: &'s [u8], providers: &[&str]) -> Cow<'s, [u8]> {
    if providers.is_empty() || !may_use_promises(text) {
        return Cow::Borrowed(text);
    }
    let mut key = text.to_vec();
    for provider in providers {
        key.push(0);
        key.extend_from_slice(provider.as_bytes());
    }
    Cow::Owned(key)
}

fn check_source(chunk_name: &str, text: &[u8]) -> Result<(), String> {
    if text.len() > SOURCE_BYTES_MAX {
        return Err(format!("{chunk_name}: the script is larger than {} KiB", SOURCE_BYTES_MAX / 1024));
    }
    // The compiler would silently end the script at a zero byte.
    if text.contains(&0) {
        return Err(format!("{chunk_name}: a zero byte in the script: it must be text, not bytecode"));
    }
    Ok(())
}

fn compile(chunk_name: &str, text: &[u8]) -> Result<Vec<u8>, String> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(format!("{chunk_name}: the script is not UTF-8 text"));
    };
    // A byte order mark is not part of the script.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Compiler::new()
        .compile(hide_shebang(text).as_bytes())
        .map_err(|error| explain::syntax_error_message(chunk_name, text, &error))
}

/// Turns a shebang line into a comment, so that line numbers stay.
fn hide_shebang(text: &str) -> std::borrow::Cow<'_, str> {
    if text.starts_with("#!") { format!("--{text}").into() } else { text.into() }
}
