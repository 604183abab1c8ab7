//! The same story on the forge and on a real Gitea, request by request. The forge may leave out keys of an answer or of a delivery; it
//! must not invent any, and what it says must be the same. `scripts/with-gitea` starts the real one.

mod difference;
mod side;
mod story;

use super::super::super::BranchProtection;
use super::{Answer, Value};
use difference::Comparison;
use http::Method;
use side::Side;
use std::time::{Duration, Instant};

/// Longest wait for an answer to a reader to become the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// Both hosts, and what differs.
struct Both {
    forge: Side,
    real: Side,
    wrong: Vec<String>,
}

impl Both {
    /// Sends a request to both and compares the answers. `{…}` in the path and the body stands for what was kept of an earlier answer.
    /// The real one follows pushes and rules in the background: an answer to a reader may become the same a little later, and a change
    /// may be answered while a check for conflicts runs.
    async fn ask(&mut self, method: Method, path: &str, who: &str, body: Value) -> (Answer, Answer) {
        let end = Instant::now() + PATIENCE;
        loop {
            let forge = self.forge.request(&method, path, who, &body).await;
            let real = self.real.request(&method, path, who, &body).await;
            let mut comparison = Comparison::new(format!("{method} {path} as {who}"));
            if method == Method::PATCH {
                comparison = comparison.loosen(&["mergeable"]);
            }
            comparison.answers((&forge, &self.forge.url), (&real, &self.real.url));
            if comparison.wrong.is_empty() || method != Method::GET || Instant::now() > end {
                self.wrong.extend(comparison.wrong);
                return (forge, real);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn get(&mut self, path: &str, who: &str) -> (Answer, Answer) {
        self.ask(Method::GET, path, who, Value::Null).await
    }

    async fn post(&mut self, path: &str, who: &str, body: Value) -> (Answer, Answer) {
        self.ask(Method::POST, path, who, body).await
    }

    /// Merges a pull request as the account, once both have checked it.
    async fn merge(&mut self, pull: &str, body: Value) {
        let path = format!("{pull}/merge");
        let (forge, real) = (self.forge.merge(&path, &body).await, self.real.merge(&path, &body).await);
        let mut comparison = Comparison::new(format!("POST {path} {body}"));
        comparison.answers((&forge, &self.forge.url), (&real, &self.real.url));
        self.wrong.extend(comparison.wrong);
    }

    /// The same, and keeps a part of both answers under a name.
    async fn keep(&mut self, name: &str, pointer: &str, method: Method, path: &str, who: &str, body: Value) {
        let (forge, real) = self.ask(method, path, who, body).await;
        self.forge.keep(name, &forge.body, pointer);
        self.real.keep(name, &real.body, pointer);
    }

    /// Waits until the mergeability of a pull request is known on both.
    async fn settle(&self, path: &str) {
        for side in [&self.forge, &self.real] {
            side.wait_for(path, "/mergeable", &Value::Bool(true)).await;
        }
    }
}

#[tokio::test]
#[ignore = "needs a real Gitea: scripts/with-gitea cargo test -p tidelock-forge gitea -- --ignored"]
async fn the_forge_answers_as_a_real_gitea() {
    let url = std::env::var("TIDELOCK_TEST_GITEA").expect("TIDELOCK_TEST_GITEA has no address");
    let root = std::env::var("TIDELOCK_TEST_GITEA_TOKEN").expect("TIDELOCK_TEST_GITEA_TOKEN has no token");
    let (forge, real) = side::both(&url, &root).await;
    let mut both = Both { forge, real, wrong: Vec::new() };
    story::of_access(&mut both).await;
    story::of_comments(&mut both).await;
    story::of_statuses(&mut both).await;
    story::of_reviews(&mut both).await;
    story::of_rules(&mut both).await;
    story::of_merges(&mut both).await;
    story::of_titles_and_bases(&mut both).await;
    story::of_forks_and_conflicts(&mut both).await;
    story::of_issues(&mut both).await;
    story::of_teams(&mut both).await;
    story::of_deliveries(&mut both).await;
    story::of_names_and_scopes(&mut both).await;
    assert!(both.wrong.is_empty(), "{} differences:\n{}", both.wrong.len(), both.wrong.join("\n"));
}
