//! Which documents a query finds, in which order, and that no query fails.

use crate::common::{
    JIRA, ScriptedConnector, Workspace, document, document_at, filtered_hit_names, hit_names, names, query,
    search, sync_source, time, workspace_with,
};
use ctx_core::Document;
use ctx_knowledge::{Filters, SearchError, SearchMode, SearchQuery};
use jiff::{Timestamp, ToSpan};

const WIKI: &str = "script:wiki";

fn tagged(document: Document, tags: &[&str]) -> Document {
    Document { tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), ..document }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[tokio::test]
async fn a_question_finds_its_answer_though_words_are_missing() {
    let (_workspace, knowledge) = workspace_with([
        document("backup", "Restore the database from last night's backup with pg_restore."),
        document("deploy", "Push the button and wait for the pipeline."),
    ])
    .await;
    assert_eq!(hit_names(&knowledge, "How do I restore a broken database?"), ["backup"]);
    assert_eq!(hit_names(&knowledge, "pushing buttons"), ["deploy"]);
    assert_eq!(hit_names(&knowledge, "nothing alike"), Vec::<String>::new());
}

#[tokio::test]
async fn more_of_the_words_is_better() {
    let (_workspace, knowledge) = workspace_with([
        document("one", "The harbour is closed in winter for maintenance of the old walls."),
        document("both", "The harbour lighthouse is closed in winter for maintenance of walls."),
    ])
    .await;
    assert_eq!(hit_names(&knowledge, "harbour lighthouse"), ["both", "one"]);
}

#[tokio::test]
async fn forms_case_and_accents_do_not_matter() {
    let (_workspace, knowledge) = workspace_with([document("a", "Deploying CAFÉS restored backups")]).await;
    for text in ["deploy", "deployed", "Cafe", "cafés", "RESTORE", "backup's"] {
        assert_eq!(hit_names(&knowledge, text), ["a"], "{text}");
    }
}

#[tokio::test]
async fn identifiers_paths_codes_and_hyphens_are_searchable() {
    let (_workspace, knowledge) = workspace_with([
        document("code", "call get_user_name or XMLHttpRequest from src/net/client.rs"),
        document("error", "It stops with ERR-4711 (0xDEADBEEF) after a fail-over."),
        document("other", "something else entirely"),
    ])
    .await;
    for text in ["get_user_name", "xmlhttprequest", "src/net/client.rs", "client.rs"] {
        assert_eq!(hit_names(&knowledge, text), ["code"], "{text}");
    }
    for text in ["ERR-4711", "err 4711", "0xdeadbeef", "fail-over", "failover fail over"] {
        assert_eq!(hit_names(&knowledge, text), ["error"], "{text}");
    }
}

#[tokio::test]
async fn identifiers_outweigh_ordinary_words() {
    let (_workspace, knowledge) = workspace_with([
        document("code", "The address is not allowed: E4033."),
        document("words", "A customer who moves to another office calls support."),
        document("other", "Parcels are planned at noon."),
    ])
    .await;
    assert_eq!(hit_names(&knowledge, "customer gets E4033 since office")[0], "code");
    assert_eq!(hit_names(&knowledge, "customer office")[0], "words");
}

#[tokio::test]
async fn a_chunk_is_found_by_the_title_and_the_headings_above_it() {
    let markdown = |name: &str, text: &str| Document {
        content_type: Some("text/markdown".to_owned()),
        title: Some("Handbook".to_owned()),
        ..document(name, text)
    };
    let (_workspace, knowledge) = workspace_with([
        markdown("a", "# Rollback\n\n## Staging\n\nPull the lever."),
        document("b", "unrelated"),
    ])
    .await;
    let hits = search(&knowledge, "rollback lever");
    assert_eq!(
        (names(&hits), hits[0].snippet.as_str()),
        (vec!["a".to_owned()], "Rollback › Staging: Pull the lever.")
    );
    assert_eq!(hit_names(&knowledge, "handbook"), ["a"]);
}

#[tokio::test]
async fn no_text_is_a_syntax_error() {
    let (_workspace, knowledge) = workspace_with([document("a", "and near harbour")]).await;
    let long = "harbour ".repeat(12_500);
    let many: String = (0..10_000).map(|n| format!("word{n} ")).collect();
    let one_word = "x".repeat(100_000);
    let odd = [
        "AND",
        "OR NOT",
        "\"",
        "\"unclosed",
        "NEAR(",
        "NEAR(a b, 3)",
        "*",
        "h*",
        "^a",
        "a:b",
        "text:",
        "-harbour",
        "+",
        "(",
        ")",
        "[a TO b]",
        "{",
        "a~2",
        "\\",
        "'; DROP TABLE documents; --",
        "%",
        "_",
        "😀",
        "👩‍👩‍👧",
        "\0",
        "a\0b",
        "\u{202e}",
        "\u{feff}",
        "ﷺ",
        "e\u{301}",
        &long,
        &many,
        &one_word,
    ];
    for text in odd {
        let outcome = knowledge.search(&query(text));
        assert!(outcome.is_ok(), "{:.40}: {outcome:?}", text);
    }
    assert_eq!(hit_names(&knowledge, "AND"), ["a"]);
    assert_eq!(hit_names(&knowledge, &long), ["a"]);
    assert_eq!(hit_names(&knowledge, "\"harbour\" OR (nothing"), ["a"]);
}

#[tokio::test]
async fn an_empty_query_is_refused() {
    let (_workspace, knowledge) = workspace_with([document("a", "harbour")]).await;
    for text in ["", " ", "\n\t \u{a0}"] {
        let outcome = knowledge.search(&query(text));
        assert!(matches!(outcome, Err(SearchError::EmptyQuery)), "{text:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn semantic_search_without_embeddings_fails_unless_it_is_the_default_mode() {
    // The workspace's own mode is `hybrid`.
    let (_workspace, knowledge) = workspace_with([document("a", "harbour")]).await;
    let outcome = |mode| knowledge.search(&SearchQuery { mode, ..query("harbour") });
    let refused = |mode| outcome(Some(mode)).unwrap_err();
    assert!(matches!(refused(SearchMode::Semantic), SearchError::EmbeddingsDisabled("semantic")));
    assert!(matches!(refused(SearchMode::Hybrid), SearchError::EmbeddingsDisabled("hybrid")));
    for mode in [None, Some(SearchMode::Keyword)] {
        assert_eq!(names(&outcome(mode).unwrap()), ["a"], "{mode:?}");
    }
}

#[tokio::test]
async fn an_empty_store_answers_with_nothing() {
    let workspace = Workspace::new();
    assert_eq!(search(&workspace.open(), "harbour"), []);
}

#[tokio::test]
async fn a_source_is_chosen_by_its_full_name_or_its_kind() {
    let [jira, wiki] = ["j", "w"].map(|name| ScriptedConnector::with([document(name, "harbour")]));
    let workspace = Workspace::new().file("f.md", "harbour").source(JIRA, &jira).source(WIKI, &wiki);
    let knowledge = workspace.open();
    for source in [JIRA, WIKI, "filesystem:notes"] {
        sync_source(&knowledge, source).await.unwrap();
    }
    let by_source = |source: &str| {
        let filters = Filters { source: Some(source.to_owned()), ..Filters::default() };
        sorted(filtered_hit_names(&knowledge, "harbour", filters))
    };
    assert_eq!(by_source(JIRA), ["j"]);
    assert_eq!(by_source("script"), ["j", "w"]);
    assert_eq!(by_source("filesystem"), ["f.md"]);
    for nothing in ["jira", "scrip", "script:", "script:jir", "Script", ""] {
        assert_eq!(by_source(nothing), Vec::<String>::new(), "{nothing}");
    }
}

#[tokio::test]
async fn tags_must_all_be_there() {
    let (_workspace, knowledge) = workspace_with([
        tagged(document("ab", "harbour"), &["a", "b"]),
        tagged(document("a", "harbour"), &["a"]),
        document("none", "harbour"),
    ])
    .await;
    let by_tags = |tags: &[&str]| {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        sorted(filtered_hit_names(&knowledge, "harbour", Filters { tags, ..Filters::default() }))
    };
    assert_eq!(by_tags(&[]), ["a", "ab", "none"]);
    assert_eq!(by_tags(&["a"]), ["a", "ab"]);
    assert_eq!(by_tags(&["a", "b"]), ["ab"]);
    assert_eq!(by_tags(&["a", "c"]), Vec::<String>::new());
    assert_eq!(by_tags(&["A"]), Vec::<String>::new());
}

#[tokio::test]
async fn since_and_until_include_their_instant() {
    let at = |month: i8| time(&format!("2026-0{month}-01T00:00:00Z"));
    let (_workspace, knowledge) =
        workspace_with((1..=4).map(|month| document_at(&month.to_string(), "harbour", at(month)))).await;
    let between = |since: Option<i8>, until: Option<i8>| {
        let filters = Filters { since: since.map(at), until: until.map(at), ..Filters::default() };
        sorted(filtered_hit_names(&knowledge, "harbour", filters))
    };
    assert_eq!(between(Some(3), None), ["3", "4"]);
    assert_eq!(between(None, Some(2)), ["1", "2"]);
    assert_eq!(between(Some(2), Some(3)), ["2", "3"]);
    assert_eq!(between(Some(3), Some(2)), Vec::<String>::new());
}

#[tokio::test]
async fn filters_apply_before_anything_is_cut_off() {
    let early = time("2026-01-01T00:00:00Z");
    let better = (0..300).map(|n| document_at(&n.to_string(), "harbour harbour harbour", early));
    let late = early + 24.hours();
    let text = format!("{} harbour", "other words come before it ".repeat(8));
    let wanted = tagged(document_at("wanted", &text, late), &["rare"]);
    let before = document_at("before", &text, early - 24.hours());
    let [jira, wiki] = [ScriptedConnector::with(better), ScriptedConnector::with([wanted, before])];
    let workspace = Workspace::new().source(JIRA, &jira).source(WIKI, &wiki);
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    sync_source(&knowledge, WIKI).await.unwrap();

    assert!(!hit_names(&knowledge, "harbour").contains(&"wanted".to_owned()));
    let by = |filters: Filters| sorted(filtered_hit_names(&knowledge, "harbour", filters));
    let any = Filters::default;
    assert_eq!(by(Filters { source: Some(WIKI.to_owned()), ..any() }), ["before", "wanted"]);
    assert_eq!(by(Filters { tags: vec!["rare".to_owned()], ..any() }), ["wanted"]);
    assert_eq!(by(Filters { since: Some(late), ..any() }), ["wanted"]);
    assert_eq!(by(Filters { until: Some(early - 1.second()), ..any() }), ["before"]);
    let both = Filters { source: Some("script".to_owned()), since: Some(late), ..any() };
    assert_eq!(by(both), ["wanted"]);
}

#[tokio::test]
async fn a_filter_does_not_change_a_score() {
    let (_workspace, knowledge) =
        workspace_with([document("a", "harbour"), document("b", "harbour light")]).await;
    let filters =
        Filters { source: Some(JIRA.to_owned()), since: Some(Timestamp::UNIX_EPOCH), ..Filters::default() };
    let with = knowledge.search(&SearchQuery { filters, ..query("harbour light") }).unwrap();
    assert_eq!(with, search(&knowledge, "harbour light"));
}
