//! The webhook and its deliveries, as each repository lists them.

use super::super::shapes;
use super::{Call, NOT_FOUND, Result, ok};
use serde_json::{Value, json};

impl Call<'_> {
    /// Lists the one webhook, which every repository shows to its admins.
    pub(super) fn webhooks(&self) -> Result {
        let state = self.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
        if repo.permission(&self.login) != "admin" {
            return Err(NOT_FOUND());
        }
        ok(Value::Array(shapes::webhook(&self.shared.url, &state, repo).into_iter().collect()))
    }

    /// Lists deliveries that were tried, latest first.
    pub(super) fn deliveries(&self) -> Result {
        let rows = {
            let state = self.shared.lock();
            state.deliveries.iter().rev().filter(|delivery| delivery.done).map(shapes::delivery).collect()
        };
        self.page(rows, "hooks/1/deliveries")
    }

    pub(super) fn delivery(&self, id: &str) -> Result {
        let state = self.shared.lock();
        let found = state.deliveries.iter().find(|delivery| delivery.id.to_string() == id).ok_or_else(NOT_FOUND)?;
        let mut body = shapes::delivery(found);
        body["response"] = json!({"headers": {}, "payload": found.answer});
        ok(body)
    }
}
