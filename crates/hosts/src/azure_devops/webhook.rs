//! Deliveries of Azure DevOps Services and Server: service hooks for pull requests that are created, updated, merged or commented on, and
//! for pushes. All others are [`Event::Other`].
//!
//! The service puts a subscription on probation after an answer that is no success. So an authentic delivery that we cannot use is
//! [`Event::Other`] as well: one of another host or event, or without required fields. Only a body that is no JSON is refused.

#[cfg(test)]
mod tests;

use super::{AzureDevOpsAddress, shapes};
use crate::webhook::{Delivered, Door, Rejection, Signed, header, short};
use base64::Engine as _;
use http::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tidelock_core::domain::{
    CommentEvent, DeliveryId, Event, Login, PullAction, PullEvent, PullId, PullState, PushEvent, Sighting, is_same,
    is_secret,
};

/// Prefix of identities.
const KIND: &str = "azuredevops";
/// Headers of which a delivery has at least one.
const OURS: [&str; 3] = ["x-vss-activityid", "x-vss-subscriptionid", "request-id"];
/// Headers of other hosts' deliveries; proxies add `request-id` to those as well.
const NOT_OURS: [&str; 4] = ["x-github-event", "x-gitea-event", "x-gitlab-event", "x-event-key"];
/// Most branches of one push that are read.
const MAX_UPDATES: usize = 100;
/// Longest message of the JSON parser that is quoted, in characters.
const MAX_MESSAGE: usize = 200;

/// The door for service hooks of Azure DevOps.
#[derive(Clone, Default)]
pub struct AzureDevOpsDoor {
    /// Address of the host.
    pub address: AzureDevOpsAddress,
    /// User of the deliveries' basic auth.
    pub user: String,
    /// Password of that user; absent: deliveries are accepted without one (the operator set a flag).
    pub password: Option<SecretString>,
    /// Previous password, which is accepted as well while it is being changed.
    pub previous: Option<SecretString>,
}

impl Door for AzureDevOpsDoor {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn claims(&self, headers: &HeaderMap) -> bool {
        OURS.iter().any(|name| headers.contains_key(*name)) && !NOT_OURS.iter().any(|name| headers.contains_key(*name))
    }

    fn is_signed(&self, headers: &HeaderMap) -> bool {
        // The password is too long to be guessed: settings refuse a shorter one.
        basic(header(headers, "authorization")).is_some()
    }

    fn verify(&self, headers: &HeaderMap, _: &[u8]) -> Result<Signed, Rejection> {
        let Some(password) = &self.password else { return Ok(Signed::No) };
        let Some((user, given)) = basic(header(headers, "authorization")) else {
            let message = "The delivery has no basic auth: give the subscription the user and the password of \
                           --azuredevops-webhook-user and --azuredevops-webhook-password";
            return Err(Rejection::new(401, message));
        };
        // Both are always compared; the configured user may be empty.
        let is_user = is_same(&self.user, &user);
        let is = |password: &SecretString| is_secret(password.expose_secret(), &given) & is_user;
        if is(password) {
            return Ok(Signed::Present);
        }
        if self.previous.as_ref().is_some_and(is) {
            return Ok(Signed::Previous);
        }
        let message = "User or password is wrong: are they those of --azuredevops-webhook-user and \
                       --azuredevops-webhook-password?";
        Err(Rejection::new(401, message))
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Rejection> {
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            let message: String = error.to_string().chars().take(MAX_MESSAGE).collect();
            Rejection::new(400, format!("The payload cannot be read: {message}"))
        })?;
        let name = body["eventType"].as_str().unwrap_or_default();
        let known = |(event, identity): (Event, DeliveryId)| (event, Some(identity));
        let read = match name {
            "git.pullrequest.created" => self.pull(&body, PullAction::Opened).map(known),
            "git.pullrequest.updated" | "git.pullrequest.merged" => self.pull(&body, PullAction::Updated).map(known),
            "ms.vss-code.git-pullrequest-comment-event" => self.comment(&body).map(known),
            "git.push" => self.push(&body).map(|push| (Event::Push(push), None)),
            _ => Err("an event that causes nothing".to_owned()),
        };
        let (event, identity) = match read {
            Ok((event, identity)) => (event, identity),
            Err(why) => (Event::Other(format!("{}: {why}", short(name))), None),
        };
        let host_id = OURS.iter().map(|name| header(headers, name)).find(|id| !id.is_empty()).unwrap_or_default();
        let sight = self.sighting(&body);
        Ok(Delivered { event, identity, host_id: short(host_id), sight })
    }

    /// Ids of comments are unique only within a pull request.
    fn comment_identity(&self, pull: &PullId, comment_id: u64) -> DeliveryId {
        DeliveryId::new(format!("{KIND}:{pull}:comment:{comment_id}"))
    }

    fn event_headers(&self) -> &'static [&'static str] {
        // The event is named in the body.
        &[]
    }

    fn other_headers(&self) -> &'static [&'static str] {
        &OURS
    }

    fn secrets(&self) -> Vec<&SecretString> {
        let previous = self.password.as_ref().and(self.previous.as_ref());
        self.password.iter().chain(previous).collect()
    }

    fn unproven_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("content-type", "application/json"), ("request-id", "0")]
    }
}

impl AzureDevOpsDoor {
    /// Returns the repository of any event, by name and id; absent if the event has none.
    fn sighting(&self, body: &Value) -> Option<Sighting> {
        let resource = &body["resource"];
        let of = [resource, &resource["pullRequest"]].into_iter().find(|of| of["repository"]["id"].is_string())?;
        let repo = shapes::repository(&self.address, &self.organization(body, of).ok()?, of).ok()?;
        Some(Sighting { repo, key: shapes::key(&of["repository"])? })
    }

    /// Reads the event of a pull request; an error names what is missing.
    fn pull(&self, body: &Value, action: PullAction) -> Result<(Event, DeliveryId), String> {
        let resource = &body["resource"];
        let id = self.pull_id(body, resource)?;
        let pull = shapes::pull_request(&self.address, &id, resource)?;
        let version = shapes::version(&pull);
        let event_id = body["id"].as_str().unwrap_or_default();
        let (action, identity) = match (&pull.state, action) {
            // One closing causes events of both kinds, `updated` and `merged`.
            (PullState::Closed | PullState::Merged { .. }, _) => {
                let closed = resource["closedDate"].as_str().unwrap_or(event_id);
                let merged = pull.state != PullState::Closed;
                (PullAction::Closed { merged }, format!("{KIND}:{id}:closed:{}", short(closed)))
            }
            (PullState::Open, PullAction::Opened) => (action, format!("{KIND}:{id}:created")),
            // The event reports neither the change nor a move of the head. A branch may return to an earlier commit.
            (PullState::Open, _) => {
                let version = hex::encode(Sha256::digest(format!("{version:?}")));
                (action, format!("{KIND}:{id}:updated:{version}:{}", short(event_id)))
            }
        };
        // The event does not name its actor: others than the author push to a pull request as well.
        let sender = if action == PullAction::Opened { pull.author.clone() } else { Login::unknown() };
        Ok((Event::Pull(PullEvent { action, pull: pull.into(), sender, version }), DeliveryId::new(identity)))
    }

    /// Reads the event of a comment, with the comment's own author. Edits arrive as the same event and are ignored.
    fn comment(&self, body: &Value) -> Result<(Event, DeliveryId), String> {
        let (comment, pull) = (&body["resource"]["comment"], &body["resource"]["pullRequest"]);
        let id = self.pull_id(body, pull)?;
        if comment["commentType"].as_str().is_some_and(|kind| kind != "text") || comment["isDeleted"] == true {
            return Err("a comment that nobody wrote".to_owned());
        }
        if shapes::is_edited(comment) {
            return Err("a comment that was edited".to_owned());
        }
        let thread = thread(comment).ok_or("no comment._links with the number of its thread")?;
        let number = comment["id"].as_u64().ok_or("no comment.id")?;
        let comment_id = shapes::comment_id(thread, number).ok_or("a comment's number is too large")?;
        let author = shapes::login(&comment["author"]);
        if author.is_unknown() {
            return Err("no comment.author.uniqueName".to_owned());
        }
        let clone_url = self.address.clone_url(&id.repo).ok_or("a name that no repository can have")?;
        let identity = self.comment_identity(&id, comment_id);
        let text = comment["content"].as_str().unwrap_or_default().to_owned();
        Ok((Event::Comment(CommentEvent { pull: id, clone_url, comment_id, author, body: text }), identity))
    }

    /// Reads the branches of a push.
    fn push(&self, body: &Value) -> Result<PushEvent, String> {
        let resource = &body["resource"];
        let repo = shapes::repository(&self.address, &self.organization(body, resource)?, resource)?;
        let names = resource["refUpdates"].as_array().into_iter().flatten().take(MAX_UPDATES);
        let branches: Vec<String> = names.filter_map(|update| shapes::branch(&update["name"])).collect();
        if branches.is_empty() { Err("no branch".to_owned()) } else { Ok(PushEvent { repo, branches }) }
    }

    /// Reads the id of the pull request.
    fn pull_id(&self, body: &Value, pull: &Value) -> Result<PullId, String> {
        Ok(shapes::pull_id(&self.address, &self.organization(body, pull)?, pull)?)
    }

    /// Returns the organization. Only addresses name it, and not every delivery has all of them.
    fn organization(&self, body: &Value, of: &Value) -> Result<String, String> {
        let (repository, containers) = (&of["repository"], &body["resourceContainers"]);
        let addresses = [
            &repository["remoteUrl"],
            &repository["webUrl"],
            &repository["url"],
            &containers["collection"]["baseUrl"],
            &containers["account"]["baseUrl"],
        ];
        let project = &repository["project"];
        let project = [&project["name"], &project["id"]].map(|text| text.as_str().unwrap_or_default());
        let organization = addresses.iter().find_map(|address| self.address.organization(address.as_str()?, project));
        organization
            .ok_or_else(|| format!("no address of {}: is --azuredevops-hostname right?", self.address.hostname()))
    }
}

/// Returns the number of a comment's thread, which only its links contain.
fn thread(comment: &Value) -> Option<u64> {
    let links = &comment["_links"];
    let after = |link: &Value| -> Option<u64> {
        let (_, rest) = link["href"].as_str()?.rsplit_once("/threads/")?;
        rest.split('/').next()?.parse().ok()
    };
    after(&links["threads"]).or_else(|| after(&links["self"]))
}

/// User and password in a header of basic auth.
fn basic(value: &str) -> Option<(String, String)> {
    let (scheme, proof) = value.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(proof.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}
