//! The relevance floor: nonsense finds nothing, a question in other words still finds its document.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{Workspace, names, query, sync};
use ctx_knowledge::{Effort, Knowledge, SearchMode, SearchQuery};
use tokio_util::sync::CancellationToken;

const BY_MEANING: [SearchMode; 2] = [SearchMode::Semantic, SearchMode::Hybrid];

/// A few unrelated documents, with all vectors of a built-in model.
async fn knowing_a_few(model: &str) -> (Workspace, Knowledge) {
    let workspace = Workspace::new()
        .embedding(model)
        .file("harbour.md", "# Harbour\nShips lie at anchor while the crew waits for high tide.")
        .file("bread.md", "# Bread\nMix flour, water and salt, then let the dough rest overnight.")
        .file("deploy.md", "# Deploy\nPush the button to roll a release out to production.")
        .file("glossary.md", "# Glossary\nquux: a placeholder that stands for nothing in particular.");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    knowledge.fill(Effort::Full, &CancellationToken::new(), &|_| ()).unwrap();
    (workspace, knowledge)
}

fn hit_names(knowledge: &Knowledge, text: &str, mode: SearchMode) -> Vec<String> {
    names(&knowledge.search(&SearchQuery { mode: Some(mode), ..query(text) }).unwrap())
}

#[tokio::test]
async fn nonsense_finds_nothing() {
    for model in ["fast", "best"] {
        let (_workspace, knowledge) = knowing_a_few(model).await;
        for mode in BY_MEANING {
            for text in ["xyzzy qwertz blorp", "hvnkpw", "zorble fnord wibbleq"] {
                assert_eq!(hit_names(&knowledge, text, mode), [""; 0], "{model} {mode:?} {text}");
            }
        }
    }
}

#[tokio::test]
async fn a_question_that_shares_no_word_with_its_document_finds_it() {
    for model in ["fast", "best"] {
        let (_workspace, knowledge) = knowing_a_few(model).await;
        for mode in BY_MEANING {
            for (text, document) in [("baking recipes", "bread.md"), ("boats and sailors", "harbour.md")] {
                let hits = hit_names(&knowledge, text, mode);
                assert_eq!(hits.first().map(String::as_str), Some(document), "{model} {mode:?} {text}");
                assert!(!hits.contains(&"glossary.md".to_owned()), "{model} {mode:?} {text}: {hits:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_word_of_the_query_is_relevant_whatever_it_means() {
    for model in ["fast", "best"] {
        let (_workspace, knowledge) = knowing_a_few(model).await;
        for mode in BY_MEANING {
            let hits = hit_names(&knowledge, "xyzzy qwertz blorp quux", mode);
            assert_eq!(hits, ["glossary.md"], "{model} {mode:?}");
        }
    }
}
