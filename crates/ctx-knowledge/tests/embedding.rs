//! Vectors of a served model: computed by the fill, kept while they are right, used once a source has all of them.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{
    JIRA, ModelServer, ScriptedConnector, ScriptedReply, Workspace, delete, document, names, query, status,
    sync, sync_source, upsert,
};
use ctx_knowledge::{Effort, FillError, FillProgress, FillReport, Hit, Knowledge, SearchMode, SearchQuery};
use std::thread;
use tokio_util::sync::CancellationToken;

/// The model that embeds documents as they are stored.
const FAST: &str = "builtin-fast-1";

/// Computes the missing vectors, on a blocking thread.
fn fill(knowledge: &Knowledge) -> Result<FillReport, FillError> {
    fill_until(knowledge, &CancellationToken::new(), &|_| ())
}

fn fill_until(
    knowledge: &Knowledge,
    cancellation: &CancellationToken,
    progress: &(dyn Fn(FillProgress) + Sync),
) -> Result<FillReport, FillError> {
    block_in_place(|| knowledge.fill(Effort::Full, cancellation, &|state| progress(state)))
}

/// Searches, on a blocking thread.
fn search(knowledge: &Knowledge, text: &str, mode: SearchMode) -> Vec<Hit> {
    let query = SearchQuery { mode: Some(mode), explain: true, ..query(text) };
    block_in_place(|| knowledge.search(&query)).unwrap()
}

fn block_in_place<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// The models that scored the hits, once each, in the order of the hits.
fn models(hits: &[Hit]) -> Vec<String> {
    let mut models: Vec<String> = hits.iter().filter_map(|hit| hit.explain.as_ref()?.model.clone()).collect();
    models.dedup();
    models
}

/// Vectors of the workspace's model, and documents with pending ones.
fn counts(knowledge: &Knowledge) -> (u64, u64) {
    let vectors = knowledge.stats().unwrap().vectors.unwrap();
    (vectors.vectors, vectors.pending_documents)
}

const COLOURS: [&str; 6] = ["red", "green", "blue", "black", "white", "brown"];

/// A workspace with a few files of one chunk each.
fn colours(server: &ModelServer) -> Workspace {
    let workspace = Workspace::new().embedding_options(server.openai("m"));
    for colour in COLOURS {
        workspace.write(&format!("{colour}.txt"), format!("The {colour} boat lies in the harbour."));
    }
    workspace
}

#[tokio::test]
async fn batches_span_documents_and_no_text_is_requested_twice() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    assert!(server.take_requests().is_empty(), "a sync does not wait for a served model");
    assert_eq!(counts(&knowledge), (0, 6));
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 6, complete: true });
    assert_eq!(server.batches(), [4, 2]);
    assert_eq!(counts(&knowledge), (6, 0));

    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 0, complete: true });
    sync(&knowledge).await;
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 0, complete: true });
    assert!(server.take_requests().is_empty(), "nothing has changed");
}

#[tokio::test]
async fn a_temporary_failure_is_retried() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let wait = vec![("retry-after", "0".to_owned())];
    server.reply_next([
        ScriptedReply::Status(429, wait, "slow down".to_owned()),
        ScriptedReply::CloseConnection,
        status(503, "busy"),
    ]);
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 6, complete: true });
    assert_eq!(server.batches(), [4, 4, 4, 4, 2]);
}

#[tokio::test]
async fn after_a_failure_only_the_missing_vectors_are_requested() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    server.reply_next([ScriptedReply::Vectors]);
    server.reply_always(status(500, "out of order"));
    let error = fill(&knowledge).unwrap_err();
    assert!(matches!(error, FillError::Embedder(_)), "{error:?}");
    assert!(error.to_string().contains("answered 500 Internal Server Error: out of order"), "{error}");
    let batches = server.batches();
    assert!(
        batches.len() > 3 && batches[0] == 4 && batches[1..].iter().all(|size| *size == 2),
        "{batches:?}"
    );
    assert_eq!(counts(&knowledge), (4, 2));

    server.reply_always(ScriptedReply::Vectors);
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 2, complete: true });
    assert_eq!(server.batches(), [2]);
}

#[tokio::test]
async fn a_permanent_failure_is_not_retried() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    server.reply_next([status(401, "who are you?")]);
    let error = fill(&knowledge).unwrap_err();
    assert!(error.to_string().contains("401 Unauthorized: who are you?"), "{error}");
    assert_eq!(server.take_requests().len(), 1);
}

#[tokio::test]
async fn a_text_that_the_model_rejects_is_skipped_and_all_others_get_vectors() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    server.reject_texts_with(Some("green boat"));
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 5, complete: true });
    // Black, blue, brown and green; black and blue; brown and green; brown; green; a probe; the rest.
    assert_eq!(server.batches(), [4, 2, 2, 1, 1, 1, 2]);
    let vectors = knowledge.stats().unwrap().vectors.unwrap();
    assert_eq!((vectors.vectors, vectors.pending_documents, vectors.unreadable_chunks), (5, 0, 1));
    let [green] = vectors.unreadable.as_slice() else { panic!("{:?}", vectors.unreadable) };
    assert_eq!((green.source.as_str(), green.source_id.as_str()), ("filesystem:notes", "green.txt"));
    assert!(green.reason.ends_with("answered 400 Bad Request: no green boat here"), "{}", green.reason);

    assert!(!knowledge.lacks_vectors().unwrap());
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 0, complete: true });
    assert!(server.take_requests().is_empty(), "it is not asked for again");
    assert_eq!(models(&search(&knowledge, "blue boat", SearchMode::Hybrid)), ["openai:m"]);
    assert_eq!(names(&search(&knowledge, "green", SearchMode::Keyword)), ["green.txt"]);
    assert!(
        names(&search(&knowledge, "boat in the harbour", SearchMode::Hybrid))
            .contains(&"green.txt".to_owned())
    );

    // Other text in its place.
    workspace.write_at("green.txt", "The olive boat.", "2026-02-01T12:00:00Z");
    sync(&knowledge).await;
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 1, complete: true });
    assert_eq!(knowledge.stats().unwrap().vectors.unwrap().unreadable_chunks, 0);
}

#[tokio::test]
async fn rejected_texts_are_requested_again_after_a_rebuild() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    server.reject_texts_with(Some("boat lies"));
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 0, complete: true });
    assert_eq!(knowledge.stats().unwrap().vectors.unwrap().unreadable_chunks, 6);
    server.reject_texts_with(None);
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 0, complete: true });
    knowledge.clear_vectors().unwrap();
    assert_eq!(counts(&knowledge), (0, 6));
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 6, complete: true });
}

#[tokio::test]
async fn a_model_that_rejects_everything_marks_no_text_as_rejected() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    server.reply_always(status(400, "no such parameter"));
    let error = fill(&knowledge).unwrap_err();
    assert!(error.to_string().ends_with("400 Bad Request: no such parameter"), "{error}");
    assert_eq!(server.batches(), [4, 2, 1, 1]);
    assert_eq!(counts(&knowledge), (0, 6));
}

#[tokio::test]
async fn a_rejected_chunk_stays_rejected_while_others_are_edited() {
    let server = ModelServer::start();
    let handbook =
        |second: &str| format!("# Handbook\n\n## Harbour\n\nGreen chains.\n\n## Bread\n\n{second}\n");
    let workspace =
        Workspace::new().embedding_options(server.openai("m")).file("handbook.md", handbook("Flour."));
    let knowledge = workspace.open();
    sync(&knowledge).await;
    server.reject_texts_with(Some("Green"));
    fill(&knowledge).unwrap();
    server.take_requests();
    workspace.write_at("handbook.md", format!("Preface.\n\n{}", handbook("Salt.")), "2026-02-01T12:00:00Z");
    sync(&knowledge).await;
    assert!(fill(&knowledge).unwrap().complete);
    let texts = server.texts();
    assert!(!texts.is_empty() && texts.iter().all(|text| !text.contains("Green")), "{texts:?}");
    assert_eq!(knowledge.stats().unwrap().vectors.unwrap().unreadable_chunks, 1);
}

#[tokio::test]
async fn while_the_model_is_down_searches_still_answer() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    fill(&knowledge).unwrap();
    assert_eq!(models(&search(&knowledge, "red boat", SearchMode::Hybrid)), ["openai:m"]);

    workspace.write("pink.txt", "The pink boat lies in the harbour.");
    drop(server);
    for mode in [SearchMode::Keyword, SearchMode::Hybrid, SearchMode::Semantic] {
        assert_eq!(names(&search(&knowledge, "green boat", mode))[0], "green.txt", "{mode:?}");
    }
    assert_eq!(models(&search(&knowledge, "red boat", SearchMode::Hybrid)), [FAST]);
    sync(&knowledge).await;
    assert_eq!(names(&search(&knowledge, "pink boat", SearchMode::Hybrid))[0], "pink.txt");
    let error = fill(&knowledge).unwrap_err();
    assert!(error.to_string().starts_with("cannot reach openai at http://127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn a_model_that_is_down_is_not_requested_by_every_search() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    fill(&knowledge).unwrap();
    server.take_requests();
    server.reply_always(status(500, "out of order"));
    for _ in 0..5 {
        assert_eq!(models(&search(&knowledge, "red boat", SearchMode::Hybrid)), [FAST]);
    }
    assert_eq!(server.batches(), [1]);
}

#[tokio::test]
async fn vectors_of_another_size_are_rejected_until_a_rebuild() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    fill(&knowledge).unwrap();
    server.dimensions(32);
    workspace.write("pink.txt", "The pink boat lies in the harbour.");
    sync(&knowledge).await;
    let error = fill(&knowledge).unwrap_err().to_string();
    assert!(
        error.contains("32 dimensions where others have 64") && error.contains("ctx embed rebuild"),
        "{error}"
    );
    assert_eq!(counts(&knowledge), (6, 1));
    // A restart changes nothing, since the store knows the size.
    let knowledge = workspace.open();
    assert!(fill(&knowledge).unwrap_err().to_string().contains("ctx embed rebuild"));
    assert_eq!(names(&search(&knowledge, "green boat", SearchMode::Semantic))[0], "green.txt");

    knowledge.clear_vectors().unwrap();
    let knowledge = workspace.open();
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 7, complete: true });
    assert_eq!(models(&search(&knowledge, "pink boat", SearchMode::Semantic)), ["openai:m"]);
}

#[tokio::test]
async fn vectors_of_another_model_are_never_compared_and_deleted_by_the_next_fill() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    fill(&knowledge).unwrap();
    drop(knowledge);

    let workspace = workspace.embedding_options(server.openai("other"));
    let knowledge = workspace.open();
    assert_eq!(counts(&knowledge), (0, 6));
    assert_eq!(models(&search(&knowledge, "green boat", SearchMode::Semantic)), [FAST]);
    server.take_requests();
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 6, complete: true });
    assert!(server.take_requests().iter().all(|request| request.body["model"] == "other"));
    assert_eq!(models(&search(&knowledge, "green boat", SearchMode::Semantic)), ["openai:other"]);
    drop(knowledge);

    // Those of the first are gone.
    let knowledge = workspace.embedding_options(server.openai("m")).open();
    assert_eq!(counts(&knowledge), (0, 6));
}

#[tokio::test]
async fn an_interrupted_fill_resumes() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let cancellation = CancellationToken::new();
    let stop_soon = |state: FillProgress| {
        if state.done > 0 {
            cancellation.cancel();
        }
    };
    let filled = fill_until(&knowledge, &cancellation, &stop_soon).unwrap();
    assert_eq!(filled, FillReport { made: 4, complete: false });
    drop(knowledge);
    server.take_requests();
    let knowledge = workspace.open();
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 2, complete: true });
    assert_eq!(server.batches(), [2]);
}

#[tokio::test]
async fn a_fill_that_waits_to_retry_can_be_interrupted() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let an_hour = vec![("retry-after", "3600".to_owned())];
    server.reply_always(ScriptedReply::Status(429, an_hour, "come back later".to_owned()));
    let cancellation = CancellationToken::new();
    let filled = thread::scope(|scope| {
        let filling = scope.spawn(|| knowledge.fill(Effort::Full, &cancellation, &|_| ()));
        server.wait_for(1);
        cancellation.cancel();
        filling.join().unwrap()
    });
    assert_eq!(filled.unwrap(), FillReport { made: 0, complete: false });
    assert_eq!(server.take_requests().len(), 1);
}

#[tokio::test]
async fn the_model_takes_over_source_by_source() {
    let server = ModelServer::start();
    let jira =
        ScriptedConnector::with((0..6).map(|n| document(&format!("J-{n}"), &format!("ticket {n}: a boat"))));
    let workspace = colours(&server).source(JIRA, &jira);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    assert_eq!(models(&search(&knowledge, "boat", SearchMode::Hybrid)), [FAST]);
    fill(&knowledge).unwrap();
    assert_eq!(models(&search(&knowledge, "boat", SearchMode::Hybrid)), ["openai:m"]);

    sync_source(&knowledge, JIRA).await.unwrap();
    let hits = search(&knowledge, "boat", SearchMode::Hybrid);
    for hit in &hits {
        let expected = if hit.source == JIRA { FAST } else { "openai:m" };
        assert_eq!(hit.explain.as_ref().unwrap().model.as_deref(), Some(expected), "{}", hit.source_id);
    }
    assert!(hits.iter().any(|hit| hit.source == JIRA) && hits.iter().any(|hit| hit.source != JIRA));
    // Cosines of two models are not comparable, so one model answers for all.
    assert_eq!(models(&search(&knowledge, "boat", SearchMode::Semantic)), [FAST]);
    fill(&knowledge).unwrap();
    assert_eq!(models(&search(&knowledge, "boat", SearchMode::Hybrid)), ["openai:m"]);
    assert_eq!(models(&search(&knowledge, "boat", SearchMode::Semantic)), ["openai:m"]);
}

#[tokio::test]
async fn only_the_edited_section_is_embedded_again() {
    let server = ModelServer::start();
    let handbook = |second: &str| {
        format!(
            "# Handbook\n\n## Harbour\n\nAnchors and chains.\n\n## Bread\n\n{second}\n\n## Wind\n\nSails.\n"
        )
    };
    let workspace = Workspace::new()
        .embedding_options(server.openai("m"))
        .file("handbook.md", handbook("Flour and water."));
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let made = fill(&knowledge).unwrap().made;
    assert!(made >= 3, "{made}");
    server.take_requests();

    workspace.write_at("handbook.md", handbook("Flour, water and salt."), "2026-02-01T12:00:00Z");
    assert_eq!(sync(&knowledge).await.updated, 1);
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 1, complete: true });
    let texts = server.texts();
    assert!(texts.len() == 1 && texts[0].contains("salt"), "{texts:?}");
    assert_eq!(counts(&knowledge), (made, 0));
}

#[tokio::test]
async fn the_vectors_of_a_deleted_document_are_deleted() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    fill(&knowledge).unwrap();
    assert_eq!(names(&search(&knowledge, "red boat", SearchMode::Semantic))[0], "red.txt");
    workspace.remove("red.txt");
    sync(&knowledge).await;
    assert_eq!(counts(&knowledge), (5, 0));
    assert!(!names(&search(&knowledge, "red boat", SearchMode::Semantic)).contains(&"red.txt".to_owned()));
}

#[tokio::test]
async fn embeddings_that_are_enabled_later_cover_stored_documents() {
    let server = ModelServer::start();
    let workspace = colours(&server).without_embedding();
    let knowledge = workspace.open();
    sync(&knowledge).await;
    assert!(knowledge.stats().unwrap().vectors.is_none());
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 0, complete: true });
    drop(knowledge);

    let workspace = workspace.embedding_options(server.openai("m"));
    let knowledge = workspace.open();
    assert_eq!(counts(&knowledge), (0, 6));
    // The fast model's vectors are computed first, and suffice.
    knowledge.fill_fast_vectors(&CancellationToken::new()).unwrap();
    assert_eq!(models(&search(&knowledge, "green boat", SearchMode::Semantic)), [FAST]);
    assert_eq!(fill(&knowledge).unwrap(), FillReport { made: 6, complete: true });
    assert_eq!(models(&search(&knowledge, "green boat", SearchMode::Semantic)), ["openai:m"]);
}

#[tokio::test]
async fn a_document_that_changes_while_it_is_embedded_is_embedded_again() {
    let server = ModelServer::start();
    let jira = ScriptedConnector::with([document("J-1", "an old boat")]);
    let workspace = Workspace::new().embedding_options(server.openai("m")).source(JIRA, &jira);
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    jira.continues([upsert(document("J-1", "a new boat"))], None);
    jira.continues([], None);
    server.hold_requests(true);
    let knowledge = std::sync::Arc::new(knowledge);
    let filling = {
        let knowledge = knowledge.clone();
        tokio::task::spawn_blocking(move || knowledge.fill(Effort::Full, &CancellationToken::new(), &|_| ()))
    };
    server.wait_for(1);
    // The first sync repeats the last step, the second one reports the change.
    sync_source(&knowledge, JIRA).await.unwrap();
    sync_source(&knowledge, JIRA).await.unwrap();
    server.hold_requests(false);
    assert!(filling.await.unwrap().unwrap().complete);
    let texts = server.texts();
    assert!(texts[0].contains("old") && texts[1].contains("new") && texts.len() == 2, "{texts:?}");
    assert_eq!(counts(&knowledge), (1, 0));
}

#[tokio::test]
async fn a_document_that_is_deleted_while_it_is_embedded_leaves_no_vectors() {
    let server = ModelServer::start();
    let jira = ScriptedConnector::new();
    jira.continues([upsert(document("J-1", "a boat"))], None);
    jira.continues([delete("J-1")], None);
    let workspace = Workspace::new().embedding_options(server.openai("m")).source(JIRA, &jira);
    let knowledge = std::sync::Arc::new(workspace.open());
    sync_source(&knowledge, JIRA).await.unwrap();
    server.hold_requests(true);
    let filling = {
        let knowledge = knowledge.clone();
        tokio::task::spawn_blocking(move || knowledge.fill(Effort::Full, &CancellationToken::new(), &|_| ()))
    };
    server.wait_for(1);
    sync_source(&knowledge, JIRA).await.unwrap();
    server.hold_requests(false);
    assert!(filling.await.unwrap().unwrap().complete);
    assert_eq!(counts(&knowledge), (0, 0));
}

#[tokio::test]
async fn only_one_process_computes_vectors() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let (knowledge, other) = (workspace.open(), workspace.open());
    sync(&knowledge).await;
    server.hold_requests(true);
    let first = thread::scope(|scope| {
        let filling = scope.spawn(|| knowledge.fill(Effort::Full, &CancellationToken::new(), &|_| ()));
        server.wait_for(1);
        assert!(matches!(fill(&other), Err(FillError::Busy)));
        server.hold_requests(false);
        filling.join().unwrap()
    });
    assert_eq!(first.unwrap(), FillReport { made: 6, complete: true });
    assert_eq!(models(&search(&other, "green boat", SearchMode::Semantic)), ["openai:m"]);
}

#[tokio::test]
async fn a_process_with_an_older_configuration_keeps_the_vectors_of_the_newer() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let older = workspace.open();
    sync(&older).await;
    fill(&older).unwrap();
    let workspace = workspace.embedding_options(server.openai("newer"));
    let newer = workspace.open();
    fill(&newer).unwrap();
    server.take_requests();

    assert!(matches!(fill(&older), Err(FillError::Replaced)));
    assert!(server.take_requests().is_empty());
    assert_eq!(counts(&newer), (6, 0));
    assert_eq!(models(&search(&older, "green boat", SearchMode::Semantic)), [FAST]);
    // The sync may still add documents.
    workspace.write("pink.txt", "The pink boat lies in the harbour.");
    assert_eq!(sync(&older).await.added, 1);
    assert_eq!(fill(&newer).unwrap(), FillReport { made: 1, complete: true });
}

#[tokio::test]
async fn vectors_are_not_deleted_during_a_fill() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    let workspace = workspace.embedding_options(server.openai("other"));
    let other = workspace.open();
    sync(&knowledge).await;
    server.hold_requests(true);
    thread::scope(|scope| {
        let filling = scope.spawn(|| knowledge.fill(Effort::Full, &CancellationToken::new(), &|_| ()));
        server.wait_for(1);
        assert!(matches!(fill(&other), Err(FillError::Busy)));
        assert!(matches!(other.clear_vectors(), Err(FillError::Busy)));
        server.hold_requests(false);
        assert_eq!(filling.join().unwrap().unwrap(), FillReport { made: 6, complete: true });
    });
}

#[tokio::test]
async fn a_rejected_query_does_not_affect_the_next_one() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    fill(&knowledge).unwrap();
    server.reply_next([status(400, "not this one")]);
    assert_eq!(models(&search(&knowledge, "green boat", SearchMode::Semantic)), [FAST]);
    assert_eq!(models(&search(&knowledge, "green boat", SearchMode::Semantic)), ["openai:m"]);
}

#[tokio::test]
async fn a_long_query_is_truncated() {
    let server = ModelServer::start();
    let workspace = colours(&server);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    fill(&knowledge).unwrap();
    server.take_requests();
    let long = format!("green boat {}", "é".repeat(1 << 20));
    assert_eq!(names(&search(&knowledge, &long, SearchMode::Semantic))[0], "green.txt");
    let texts = server.texts();
    assert!(texts[0].starts_with("green boat") && texts[0].len() <= 8_000, "{}", texts[0].len());
}

#[tokio::test]
async fn a_long_document_does_not_keep_others_from_being_found() {
    let section = |n: usize| format!("## Harbour {n}\n\nThe harbour, the harbour and the harbour.\n\n");
    let long: String = (0..400).map(section).collect();
    let workspace = Workspace::new().embedding("fast").file("long.md", format!("# Harbour\n\n{long}"));
    for (n, thing) in ["bread", "wind", "money", "music", "cats"].into_iter().enumerate() {
        let text = format!("{thing} and more {thing}, number {n}. Once it was in a harbour. {thing} again.");
        workspace.write(&format!("{thing}.txt"), text);
    }
    let knowledge = workspace.open();
    sync(&knowledge).await;
    for mode in [SearchMode::Keyword, SearchMode::Semantic, SearchMode::Hybrid] {
        assert_eq!(search(&knowledge, "harbour", mode).len(), 6, "{mode:?}");
    }
}
