//! Pull requests in answers of a moment ago, so that questions that come together, such as about reviews and mergeability, cost one request.

use super::BitbucketCloud;
use crate::vcs::HostError;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidelock_core::domain::PullId;

/// Time for which an answer is used. A command reads its pull request again when it begins.
const FRESH: Duration = Duration::from_secs(2);
/// Most pull requests that are remembered. At this number all are removed.
const MOST: usize = 1_000;

/// The last answer about a pull request. It is locked while the host is asked, so that others wait for that answer.
type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Value)>>>;

/// Answers by pull request.
#[derive(Default)]
pub(super) struct RecentPulls(Mutex<HashMap<PullId, Slot>>);

impl RecentPulls {
    fn slot(&self, pull: &PullId) -> Slot {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        Arc::clone(known.entry(pull.clone()).or_default())
    }
}

impl BitbucketCloud {
    /// Returns the present JSON of a pull request, for later questions as well.
    pub(super) async fn present_pull(&self, pull: &PullId) -> Result<Value, HostError> {
        let slot = self.recent.slot(pull);
        let mut slot = slot.lock().await;
        self.ask(pull, &mut slot).await
    }

    /// Returns the JSON of a pull request as it is now, or was a moment ago.
    pub(super) async fn recent_pull(&self, pull: &PullId) -> Result<Value, HostError> {
        let slot = self.recent.slot(pull);
        let mut slot = slot.lock().await;
        if let Some((at, told)) = &*slot
            && at.elapsed() < FRESH
        {
            return Ok(told.clone());
        }
        self.ask(pull, &mut slot).await
    }

    /// Asks for a pull request, and keeps the answer. Its time is that of the question.
    async fn ask(&self, pull: &PullId, slot: &mut Option<(Instant, Value)>) -> Result<Value, HostError> {
        let asked = Instant::now();
        *slot = None;
        let told = self.pull(pull).await?;
        *slot = Some((asked, told.clone()));
        Ok(told)
    }
}
