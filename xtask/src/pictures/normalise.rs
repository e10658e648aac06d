//! Normalises program output: replaces paths, ports, times, durations, sizes and random ids, which differ between runs
//! and machines, by constants.

use std::path::Path;

/// The address that the example workspace configures; the recorded server uses any free port.
const PORT: &str = "7331";
const DURATION: &str = "4.2 ms";
const TIME: &str = "2026-05-04T12:00:00Z";
const RANDOM_ID: &str = "019df2f2-3a80-7c31-9d0e-5b6a7c8d9e0f";

/// The number of bytes varies with the lengths of paths and scores; it is rounded to this.
const BYTES_ROUNDED: u64 = 1_000;

/// The normalised output of a program whose home folder is `home`.
pub(super) fn normalise(output: &str, home: &Path) -> String {
    let output = output.replace(&*home.to_string_lossy(), "~");
    let mut normalised = String::with_capacity(output.len());
    let mut words = output.split_inclusive([' ', '\n']).peekable();
    while let Some(word) = words.next() {
        let (text, end) = split_end(word);
        let unit = words.peek().map(|next| split_end(next));
        if is_number(text) && end == " " && matches!(unit, Some(("ms" | "s" | "µs", _))) {
            normalised.push_str(DURATION);
            normalised.extend(words.next().map(|unit| split_end(unit).1));
            continue;
        }
        normalised.push_str(&match text {
            text if is_time(text) => TIME.to_owned(),
            text if is_random_id(text) => RANDOM_ID.to_owned(),
            text if normalised.ends_with("\"bytes_kept\": ") => rounded(text),
            text => with_port(text),
        });
        normalised.push_str(end);
    }
    normalised
}

/// A word, and the space or line break after it.
fn split_end(word: &str) -> (&str, &str) {
    word.split_at(word.trim_end_matches([' ', '\n']).len())
}

fn is_number(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

/// Whether this is an RFC 3339 time of any precision.
fn is_time(text: &str) -> bool {
    let shape: String =
        text.chars().take(20).map(|char| if char.is_ascii_digit() { '0' } else { char }).collect();
    text.ends_with('Z') && (shape == "0000-00-00T00:00:00Z" || shape == "0000-00-00T00:00:00.")
}

/// Whether this is a UUID of version 7, such as the id of a run; ids of documents are hashes, and stay.
fn is_random_id(text: &str) -> bool {
    text.len() == RANDOM_ID.len()
        && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
        && text.as_bytes()[14] == b'7'
}

fn rounded(bytes: &str) -> String {
    let rounded = |bytes: u64| (bytes + BYTES_ROUNDED / 2) / BYTES_ROUNDED * BYTES_ROUNDED;
    bytes.parse().map_or_else(|_| bytes.to_owned(), |bytes| rounded(bytes).to_string())
}

fn with_port(text: &str) -> String {
    const HOST: &str = "127.0.0.1:";
    let Some((before, after)) = text.split_once(HOST) else { return text.to_owned() };
    format!("{before}{HOST}{PORT}{}", after.trim_start_matches(|char: char| char.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_between_runs_become_constants() {
        let normalised_output = |home: &str, port: u16, time: &str, duration: &str, id: &str, bytes: u32| {
            let output = format!(
                "serving http://127.0.0.1:{port}\n  --config {home}/ctx.toml\n{id}  {time}  ok  {duration}  2 B\n\
                 curl http://127.0.0.1:{port}/mcp \\\n  \"bytes_kept\": {bytes}\n"
            );
            normalise(&output, Path::new(home))
        };
        let one = normalised_output(
            "/tmp/a",
            40123,
            "2026-11-19T05:47:17.58Z",
            "4.4 ms",
            "01a1f258-54cc-75fc-9188-0b7280960f2c",
            58_962,
        );
        let other = normalised_output(
            "/var/b/c",
            9,
            "2027-01-01T00:00:00Z",
            "1.25 s",
            "01b2f258-64cc-7000-8188-1b7280960f2c",
            59_102,
        );
        assert_eq!(one, other);
        let expected = format!(
            "serving http://127.0.0.1:7331\n  --config ~/ctx.toml\n{RANDOM_ID}  {TIME}  ok  {DURATION}  2 B\n\
             curl http://127.0.0.1:7331/mcp \\\n  \"bytes_kept\": 59000\n"
        );
        assert_eq!(one, expected);
    }

    #[test]
    fn other_values_stay() {
        let output =
            "  30 documents, 24 minutes  (0.98)\n\nid bbc32a88-75f0-516f-882e-820e28c1cc4d 2026-05-04\n";
        assert_eq!(normalise(output, Path::new("/tmp/a")), output);
    }
}
