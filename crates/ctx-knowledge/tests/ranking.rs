//! Scores, order, number and snippets of hits.

use crate::common::{
    JIRA, ScriptedConnector, Workspace, delete, document, document_at, hit_names, names, query, search,
    sync_source, time, workspace_with,
};
use ctx_core::Document;
use ctx_knowledge::{SearchMode, SearchQuery};
use jiff::ToSpan;

#[tokio::test]
async fn the_limit_is_honoured_and_at_most_a_hundred() {
    let (_workspace, knowledge) = workspace_with((0..120).map(|n| document(&n.to_string(), "harbour"))).await;
    for (limit, expected) in [(1, 1), (7, 7), (100, 100), (101, 100), (usize::MAX, 100)] {
        let hits = knowledge.search(&SearchQuery { limit, ..query("harbour") }).unwrap();
        assert_eq!(hits.len(), expected, "limit {limit}");
    }
}

#[tokio::test]
async fn hits_are_ordered_by_score_then_newest_then_id() {
    let at = |day: i8| time("2026-01-01T00:00:00Z") + (24 * i64::from(day)).hours();
    let mut documents = vec![document_at("best", "harbour harbour harbour", at(0))];
    // Names of one length, so that titles and with them scores are alike.
    for day in 1..=9 {
        documents.push(document_at(&format!("x{day}"), "harbour light tower", at(day)));
        documents.push(document_at(&format!("y{day}"), "harbour light tower", at(day)));
    }
    let (_workspace, knowledge) = workspace_with(documents).await;
    let hits = knowledge.search(&SearchQuery { limit: 30, ..query("harbour") }).unwrap();
    assert_eq!((hits.len(), hits[0].source_id.as_str()), (19, "best"));
    for pair in hits.windows(2) {
        let key = |index: usize| {
            let hit = &pair[index];
            (-(hit.score * 10_000.0) as i64, std::cmp::Reverse(hit.updated_at), hit.id)
        };
        assert!(key(0) < key(1), "{pair:#?}");
    }
    assert_eq!(hits[1].updated_at, at(9));
}

#[tokio::test]
async fn scores_lie_between_nothing_and_one() {
    let rare = "zyzzyva ".repeat(200);
    let mut documents = vec![document("rare", &rare)];
    documents.extend((0..200).map(|n| document(&n.to_string(), "harbour")));
    let (_workspace, knowledge) = workspace_with(documents).await;
    for text in ["zyzzyva", "harbour", "zyzzyva harbour"] {
        let hits = search(&knowledge, text);
        assert!(!hits.is_empty());
        assert!(hits.iter().all(|hit| (0.0..=1.0).contains(&hit.score)), "{text}: {hits:?}");
        assert!(hits.is_sorted_by(|a, b| a.score >= b.score));
    }
    assert!(search(&knowledge, "zyzzyva")[0].score > search(&knowledge, "harbour")[0].score);
}

#[tokio::test]
async fn a_long_document_does_not_hide_others() {
    let sections: String =
        (0..300).map(|n| format!("## Harbour {n}\n\nharbour harbour harbour {n}\n\n")).collect();
    let long = Document { content_type: Some("text/markdown".to_owned()), ..document("long", &sections) };
    let filler = "other words ".repeat(30);
    let others = (0..5).map(|n| document(&format!("short{n}"), &format!("{filler} harbour")));
    let (_workspace, knowledge) = workspace_with(std::iter::once(long).chain(others)).await;
    assert!(knowledge.stats().unwrap().chunks > 300);
    let mut names = hit_names(&knowledge, "harbour");
    assert_eq!(names.remove(0), "long");
    names.sort();
    assert_eq!(names, ["short0", "short1", "short2", "short3", "short4"]);
}

#[tokio::test]
async fn a_snippet_shows_the_part_that_matches() {
    let filler = "Nothing to see here. ".repeat(400);
    let text = format!("{filler}\n\nThe lighthouse keeper\nhas the key.\n\n{filler}");
    let (_workspace, knowledge) = workspace_with([document("a", &text)]).await;
    let snippet = &search(&knowledge, "who keeps the lighthouse key")[0].snippet;
    assert!(snippet.contains("lighthouse keeper has the key."), "{snippet}");
    assert!(snippet.len() < 400 && !snippet.contains('\n'), "{snippet}");
}

#[tokio::test]
async fn a_hit_names_its_document() {
    let full_document = Document {
        title: Some("Harbour".to_owned()),
        source_url: Some("https://example.com/7".to_owned()),
        ..document_at("7", "Ships rest.", time("2026-01-01T00:00:00Z"))
    };
    let (_workspace, knowledge) = workspace_with([full_document]).await;
    let hit = &search(&knowledge, "ships")[0];
    let document = knowledge.get(hit.id).unwrap().unwrap();
    let of_hit = (&hit.title, &hit.source, &hit.source_id, hit.updated_at, &hit.source_url);
    let of_document =
        (&document.title, &document.source, &document.source_id, document.updated_at, &document.source_url);
    assert_eq!(of_hit, of_document);
    assert_eq!(hit.snippet, "Ships rest.");
}

#[tokio::test]
async fn a_score_is_explained_only_when_asked() {
    let (_workspace, knowledge) = workspace_with([document("a", "ships rest in harbours")]).await;
    let plain = search(&knowledge, "the harbour");
    let explained = knowledge.search(&SearchQuery { explain: true, ..query("the harbour") }).unwrap();
    assert_eq!(plain[0].explain, None);
    assert!(!serde_json::to_value(&plain[0]).unwrap().as_object().unwrap().contains_key("explain"));
    let explanation = explained[0].explain.as_ref().unwrap();
    assert_eq!((explanation.mode, explanation.chunk), (SearchMode::Keyword, 0));
    assert_eq!(explanation.terms, ["harbour"]);
    let mapped = explanation.keyword_score.unwrap() / (explanation.keyword_score.unwrap() + 8.0);
    assert!((mapped - explained[0].score).abs() < 0.0001);
    assert_eq!((names(&plain), plain[0].score), (names(&explained), explained[0].score));
}

#[tokio::test]
async fn a_deleted_document_is_not_found() {
    let jira = ScriptedConnector::with(["a", "b"].map(|name| document(name, "harbour")));
    jira.continues([delete("a")], None);
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    sync_source(&knowledge, JIRA).await.unwrap();
    assert_eq!(hit_names(&knowledge, "harbour"), ["b"]);
}

#[tokio::test]
async fn a_document_gone_from_the_store_is_not_found_though_the_index_has_it() {
    let (workspace, knowledge) =
        workspace_with((0..20).map(|n| document(&format!("{n:02}"), "harbour"))).await;
    let store = ctx_store::RawConnection::open(&workspace.store_path()).unwrap();
    store.execute("PRAGMA foreign_keys = true; DELETE FROM documents WHERE source_id < '15'").unwrap();
    let mut left = hit_names(&knowledge, "harbour");
    left.sort();
    assert_eq!(left, ["15", "16", "17", "18", "19"]);
}
