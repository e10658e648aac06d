//! Documents and sources.

use super::OpenStore;
use super::follower::DocumentFollower;
use super::samples::{document, id, source};
use crate::changes::{ChangeCursor, ChangeScope};
use crate::documents::{DocumentName, Mutation, NewDocument, SkipNote, SyncOutcome};
use crate::files::FileState;
use crate::filters::Filters;
use crate::store::Store;
use ctx_core::Cursor;
use jiff::Timestamp;
use std::collections::BTreeSet;
use uuid::Uuid;

fn put(store: &dyn Store, source: u8, name: &str, body: &str) {
    store.apply(&[Mutation::Put(Box::new(document(source, name, body)))]).unwrap();
}

pub(super) fn sync_outcomes_are_kept_by_their_rules(open: OpenStore<'_>) {
    let store = open("outcomes");
    let finish = |cursor: Option<Option<&str>>, error: Option<&str>, warnings| {
        let cursor = cursor.map(|cursor| cursor.map(|text| Cursor(text.to_owned())));
        let outcome = SyncOutcome { cursor, error: error.map(str::to_owned), warnings };
        store.finish_sync(&source(1), &outcome).unwrap();
        store.sources().unwrap().remove(&source(1).to_string()).unwrap()
    };
    let failed = finish(None, Some("away"), 0);
    assert_eq!((failed.cursor, failed.synced_at, failed.error.as_deref()), (None, None, Some("away")));
    let first = finish(Some(Some("one")), None, 3);
    assert_eq!(
        (first.cursor.clone(), first.error.clone(), first.warnings),
        (Some(Cursor("one".to_owned())), None, 3)
    );
    assert!(first.synced_at.is_some());
    let failed = finish(None, Some("away"), 0);
    assert_eq!(
        (failed.cursor, failed.synced_at),
        (first.cursor, first.synced_at),
        "a failure takes nothing back"
    );
    assert_eq!(finish(Some(None), None, 0).cursor, None);
    store.forget_source(&source(1)).unwrap();
    assert!(store.sources().unwrap().is_empty());
}

pub(super) fn a_document_comes_back_whole(open: OpenStore<'_>) {
    let store = open("whole");
    put(&*store, 1, "a", "one\ntwo\n");
    let mut changed = document(1, "a", "one\nthree, älter\n");
    changed.created_at = Timestamp::from_millisecond(9_999).unwrap();
    store.apply(&[Mutation::Put(Box::new(changed.clone()))]).unwrap();
    let stored = open("whole").document(id(1, "a")).unwrap().unwrap();
    assert_eq!(stored.created_at, Timestamp::from_millisecond(1_000).unwrap(), "it came to be once");
    assert_eq!((stored.body.as_str(), stored.updated_at), ("one\nthree, älter\n", changed.updated_at));
    assert_eq!(stored.chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), stored.body);
    assert_eq!(
        (stored.tags, stored.metadata["a"].as_i64()),
        (vec!["all".to_owned(), "s1".to_owned()], Some(1))
    );
    let key = store.list(0, 9).unwrap()[0].key;
    let texts = store.chunk_texts(&[(key, 1), (key, 7), (key + 1, 0)]).unwrap();
    let texts: Vec<(&str, &str)> =
        texts.iter().map(|one| (one.heading.as_str(), one.text.as_str())).collect();
    assert_eq!(texts, [("a > 1", "three, älter\n"), ("", ""), ("", "")]);
    let summaries = store.summaries(&[key + 1, key]).unwrap();
    assert_eq!(
        (summaries.len(), summaries[0].id, &summaries[0].sketch),
        (1, id(1, "a"), &Some(vec![1, 2, 3]))
    );
    let text = |bytes_max| store.text(id(1, "a"), bytes_max).unwrap().unwrap();
    let bytes = stored.body.len();
    assert_eq!((text(bytes).text, text(bytes - 1).text), (Some(stored.body), None));
    assert_eq!(text(0).bytes, bytes as u64);
    assert!(store.document(Uuid::nil()).unwrap().is_none() && store.text(Uuid::nil(), 1).unwrap().is_none());
}

pub(super) fn lists_and_names_come_in_pages(open: OpenStore<'_>) {
    let store = open("pages");
    for name in ["b", "a.x", "a/x", "c", "a"] {
        put(&*store, 1, name, name);
        put(&*store, 2, name, name);
    }
    // A document that is written again keeps its place in the list.
    put(&*store, 2, "b", "another");
    let (mut listed, mut after) = (Vec::new(), 0);
    loop {
        let page = store.list(after, 3).unwrap();
        let Some(last) = page.last() else { break };
        after = last.key;
        listed.extend(page.into_iter().map(|one| (one.source_id, one.source)));
    }
    let expected = ["b", "a.x", "a/x", "c", "a"]
        .iter()
        .flat_map(|name| [1, 2].map(|number| ((*name).to_owned(), source(number).to_string())));
    assert_eq!(listed, expected.collect::<Vec<_>>());
    let (mut names, mut last): (Vec<(String, String)>, Option<DocumentName>) = Default::default();
    loop {
        let page = store.names(last.as_ref(), 4).unwrap();
        names.extend(page.iter().map(|name| (name.source.clone(), name.source_id.clone())));
        last = page.into_iter().last();
        if last.is_none() {
            break;
        }
    }
    listed.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    assert_eq!(names, listed.into_iter().map(|(name, source)| (source, name)).collect::<Vec<_>>());
}

pub(super) fn filters_select_documents(open: OpenStore<'_>) {
    let store = open("filters");
    put(&*store, 1, "short", "12345");
    put(&*store, 1, "long", "1234567890");
    put(&*store, 2, "short", "12345");
    let keys: Vec<u64> = store.list(0, 9).unwrap().iter().map(|one| one.key).collect();
    let selected = |filters: Filters, sources: Option<&[u8]>| {
        let sources: Option<BTreeSet<String>> =
            sources.map(|numbers| numbers.iter().map(|number| source(*number).to_string()).collect());
        let set = store.documents_within(&filters, sources.as_ref()).unwrap();
        keys.iter().map(|key| set.contains(*key)).collect::<Vec<_>>()
    };
    let at = |milliseconds| Some(Timestamp::from_millisecond(milliseconds).unwrap());
    let none = Filters::default;
    assert_eq!(selected(none(), None), [true, true, true]);
    assert_eq!(selected(none(), Some(&[2])), [false, false, true]);
    assert_eq!(selected(none(), Some(&[])), [false, false, false]);
    let named = Filters { source: Some(source(1).to_string()), ..none() };
    assert_eq!(selected(named, None), [true, true, false]);
    let kind = Filters { source: Some("contract".to_owned()), ..none() };
    assert_eq!(selected(kind, Some(&[1])), [true, true, false]);
    let tagged = Filters { tags: vec!["all".to_owned(), "s2".to_owned()], ..none() };
    assert_eq!(selected(tagged, None), [false, false, true]);
    assert_eq!(selected(Filters { since: at(2_006), ..none() }, None), [false, true, false]);
    assert_eq!(selected(Filters { since: at(2_005), until: at(2_005), ..none() }, None), [true, false, true]);
}

pub(super) fn stamps_come_in_the_order_of_the_question(open: OpenStore<'_>) {
    let store = open("stamps");
    let names: Vec<String> = (0..600).map(|number| format!("n{number}")).collect();
    let puts: Vec<Mutation> =
        names.iter().step_by(2).map(|name| Mutation::Put(Box::new(document(1, name, name)))).collect();
    store.apply(&puts).unwrap();
    let fingerprint = "other".to_owned();
    let reason = "no".to_owned();
    let (skipped, source, source_id) = (id(1, "n1"), source(1), "n1".to_owned());
    store.apply(&[Mutation::SkipUnreadable { id: skipped, source, source_id, fingerprint, reason }]).unwrap();
    for count in [1, 15, 16, 256, 257, 600] {
        let mut ids: Vec<Uuid> = names[..count].iter().rev().map(|name| id(1, name)).collect();
        ids.push(ids[0]);
        let stamps = store.stamps(&ids).unwrap();
        assert_eq!(stamps.len(), ids.len());
        assert_eq!(stamps.last(), stamps.first(), "asked for twice");
        for (stamp, name) in stamps.iter().zip(names[..count].iter().rev()) {
            let is_stored = name[1..].parse::<u32>().unwrap() % 2 == 0;
            let expected = is_stored.then(|| blake3::hash(name.as_bytes()).as_bytes().to_vec());
            assert_eq!(stamp.stored.as_ref().map(|stored| stored.hash.clone()), expected, "{name}");
            let reason = Some("no".to_owned());
            let note = SkipNote { fingerprint: "other".to_owned(), reason, is_named: true };
            assert_eq!(stamp.skipped, (name == "n1").then_some(note), "{name}");
        }
    }
    assert!(store.stamps(&[]).unwrap().is_empty());
}

pub(super) fn files_of_a_source_come_in_pages_with_their_states(open: OpenStore<'_>) {
    let store = open("files");
    let file = |number: u8, name: &str| (id(number, name), source(number), name.to_owned());
    for (name, body) in [("whole", "one"), ("", "nameless"), ("changed", "before"), ("emptied", "before")] {
        put(&*store, 1, name, body);
    }
    let partial = NewDocument { note: Some("too long".to_owned()), ..document(1, "a/partial", "one") };
    let (id_of_empty, source_1, source_id) = file(1, "emptied");
    let fingerprint = || "g".to_owned();
    let empty = |number| {
        let (id, source, source_id) = file(number, "é.png");
        Mutation::SkipEmpty { id, source, source_id, fingerprint: fingerprint() }
    };
    let unreadable = |name| {
        let (id, source, source_id) = file(1, name);
        Mutation::SkipUnreadable {
            id,
            source,
            source_id,
            fingerprint: fingerprint(),
            reason: "damaged".to_owned(),
        }
    };
    store
        .apply(&[
            Mutation::Put(Box::new(partial)),
            Mutation::SkipEmpty { id: id_of_empty, source: source_1, source_id, fingerprint: fingerprint() },
            empty(1),
            empty(2),
            unreadable("a.pdf"),
            unreadable("changed"),
        ])
        .unwrap();
    let reason = || "damaged".to_owned();
    let expected = [
        ("", FileState::Indexed),
        ("a.pdf", FileState::Unreadable { reason: reason(), has_earlier_text: false }),
        ("a/partial", FileState::Partial { reason: "too long".to_owned() }),
        ("changed", FileState::Unreadable { reason: reason(), has_earlier_text: true }),
        ("emptied", FileState::Empty),
        ("whole", FileState::Indexed),
        ("é.png", FileState::Empty),
    ];
    let expected: Vec<_> =
        expected.into_iter().map(|(name, state)| (Some(name.to_owned()), id(1, name), state)).collect();
    for limit in 1..9 {
        let (mut files, mut after) = (Vec::new(), None);
        loop {
            let page = store.files(&source(1), after.as_ref(), limit).unwrap();
            let Some(last) = page.last() else { break };
            assert!(page.len() <= limit);
            after = Some(last.position());
            files.extend(page.into_iter().map(|file| {
                assert!(file.read_at.is_some());
                (file.source_id, file.id, file.state)
            }));
        }
        assert_eq!(files, expected, "pages of {limit}");
    }
    // The first two have names already, the last is not known.
    let others = [id(1, "é.png"), id(1, "a/partial"), id(1, "unknown")];
    store.name_skipped(&others.map(|id| (id, "other".to_owned()))).unwrap();
    let names: Vec<_> =
        store.files(&source(1), None, 99).unwrap().into_iter().map(|file| file.source_id).collect();
    assert_eq!(names, expected.into_iter().map(|(name, ..)| name).collect::<Vec<_>>());
    assert_eq!(store.files(&source(2), None, 99).unwrap().len(), 1);
    assert!(store.files(&source(3), None, 99).unwrap().is_empty());
}

pub(super) fn forgotten_deletions_make_followers_start_over(open: OpenStore<'_>) {
    let store = open("forgotten");
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    names.iter().for_each(|name| put(&*store, 1, name, name));
    let mut follower = DocumentFollower::default();
    follower.catch_up(&*store, 7);
    let seen = follower.generation();
    let deletions: Vec<Mutation> = names[..15].iter().map(|name| Mutation::Delete(id(1, name))).collect();
    assert_eq!(store.apply(&deletions).unwrap().deleted, 15);
    assert_eq!(store.apply(&deletions).unwrap().deleted, 0, "they are gone");
    store.forget_old_deletions(10).unwrap();
    assert!(store.changes(ChangeCursor::after(seen), ChangeScope::Documents, 9).unwrap().is_none());
    follower.catch_up(&*store, 7);
    assert_eq!(follower.documents.len(), 5);
    store.forget_old_deletions(10).unwrap();
    assert!(
        store.changes(ChangeCursor::START, ChangeScope::Documents, 9).unwrap().is_some(),
        "nothing to miss"
    );
    let ahead = crate::changes::Generation(store.generation().unwrap().0 + 1);
    assert!(
        store.changes(ChangeCursor::after(ahead), ChangeScope::Documents, 9).unwrap().is_none(),
        "of a copy"
    );
}
