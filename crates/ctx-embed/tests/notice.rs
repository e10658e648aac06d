//! `NOTICE.md` lists the checksums of the actual model files.

#[test]
fn the_checksums_in_the_notice_are_those_of_the_files() {
    let notice = include_str!("../models/NOTICE.md");
    let files: [(&str, &[u8]); 3] = [
        ("best.bin", include_bytes!("../models/best.bin")),
        ("fast.bin", include_bytes!("../models/fast.bin")),
        ("tokenizer.bin", include_bytes!("../models/tokenizer.bin")),
    ];
    for (name, bytes) in files {
        let line = format!("| `{name}` | {} | `{}` |", bytes.len(), blake3::hash(bytes));
        assert!(notice.contains(&line), "NOTICE.md lacks the line\n{line}");
    }
}
