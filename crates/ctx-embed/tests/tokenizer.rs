//! The tokenizer against the reference implementation, and its own invariants.

use ctx_embed::Tokenizer;
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

#[test]
fn word_pieces_are_those_of_the_reference() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("fixtures/tokens.json")).unwrap();
    assert!(cases.len() > 400);
    for Case { text, ids } in cases {
        assert_eq!(Tokenizer::builtin().encode(&text, usize::MAX), ids, "{text:?}");
    }
}

#[test]
fn no_text_can_forge_a_special_piece() {
    let ids = Tokenizer::builtin().encode("[CLS] [SEP] [PAD] [MASK]", usize::MAX);
    assert!(ids.iter().all(|id| ![0, 101, 102, 103].contains(id)), "{ids:?}");
}

#[test]
fn a_piece_tells_where_it_comes_from() {
    let text = "Unaffable  Café\u{301}s!\u{0}";
    let pieces: Vec<&str> = Tokenizer::builtin().pieces(text).into_iter().map(|range| &text[range]).collect();
    assert_eq!(pieces, ["Una", "ffa", "ble", "Café\u{301}s", "!"]);
}

#[test]
fn a_huge_word_is_one_unknown_piece() {
    let text = "x".repeat(1_000_000);
    assert_eq!(Tokenizer::builtin().encode(&text, usize::MAX), [100]);
    assert_eq!(Tokenizer::builtin().pieces(&text).as_slice(), std::slice::from_ref(&(0..text.len())));
}

fn check(text: &str) -> Result<(), TestCaseError> {
    let tokenizer = Tokenizer::builtin();
    let ids = tokenizer.encode(text, usize::MAX);
    let pieces = tokenizer.pieces(text);
    prop_assert_eq!(tokenizer.count(text), ids.len());
    prop_assert_eq!(pieces.len(), ids.len());
    let mut end = 0;
    for piece in pieces {
        prop_assert!(end <= piece.start && piece.start <= piece.end && piece.end <= text.len());
        prop_assert!(text.is_char_boundary(piece.start) && text.is_char_boundary(piece.end));
        end = piece.end;
    }
    for max in [0, 1, ids.len() / 2, ids.len()] {
        prop_assert_eq!(tokenizer.count_up_to(text, max), max.min(ids.len()));
        let start = tokenizer.pieces(text).get(max).map(|piece| piece.start);
        prop_assert_eq!(tokenizer.start_of(text, max), start);
        prop_assert_eq!(&tokenizer.encode(text, max)[..], &ids[..max.min(ids.len())]);
    }
    Ok(())
}

proptest! {
    #[test]
    fn pieces_are_in_order_and_as_many_as_counted(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn pieces_of_mixed_scripts_are_too(text in "([a-zA-Z]{0,9}|\\PC|[가-힣]|[\u{0}-\u{20}]|é|e\u{301}){0,40}") {
        check(&text)?;
    }

    #[test]
    fn words_cut_apart_at_spaces_have_as_many_pieces(
        words in prop::collection::vec("[a-zA-Z0-9]{1,12}", 0..20)
    ) {
        let tokenizer = Tokenizer::builtin();
        let apart: usize = words.iter().map(|word| tokenizer.count(word)).sum();
        prop_assert_eq!(tokenizer.count(&words.join(" ")), apart);
    }
}

#[test]
fn the_vocabulary_is_all_pieces_by_their_numbers() {
    let tokenizer = Tokenizer::builtin();
    let vocabulary = tokenizer.vocabulary();
    assert_eq!(vocabulary.len(), 30_522);
    for (number, piece) in [(0, "[PAD]"), (100, "[UNK]"), (101, "[CLS]"), (1_996, "the"), (2_075, "##ing")] {
        assert_eq!(vocabulary[number], piece);
    }
    let is_word = |piece: &str| piece.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let words = vocabulary.iter().enumerate().filter(|(_, piece)| is_word(piece));
    assert!(words.clone().count() > 20_000);
    for (number, piece) in words {
        assert_eq!(tokenizer.encode(piece, usize::MAX), [number as u32], "{piece}");
    }
}
