//! Accounts and what they may do: permissions with conditions, as the service evaluates them. A request without an account is the owner's.
//!
//! What is modelled, and where it is known from:
//!
//! - A condition has the name of what is accessed: an object for `create`, `get`, `delete` and `update`, the bucket for `list`. So a prefix
//!   of object names never grants a list; the attribute `objectListPrefix` does, for lists of such a prefix
//!   (docs.cloud.google.com/iam/docs/conditions-attribute-reference; docs.cloud.google.com/iam/docs/downscoping-short-lived-credentials).
//! - To overwrite an object takes `delete` besides `create` (docs.cloud.google.com/storage/docs/access-control/iam-roles: an object creator
//!   cannot; github.com/ducktors/turborepo-remote-cache/issues/95 has the refusal). Whether it is refused before or after a precondition is
//!   not documented: [`crate::StorageDouble::check_rights_first`].
//! - Who may read an object but not list the bucket gets 403 for one that does not exist, so that nobody finds out names
//!   (github.com/seung-lab/cloud-volume/pull/260; the words of the refusal say "or it may not exist",
//!   github.com/n8n-io/n8n/issues/34269). It is not known whether every transport and every kind of grant does so: a client has to take
//!   404 as well ([`crate::StorageDouble::tell_absence`]).
//! - The address of a resumable upload is a right to upload in itself (docs.cloud.google.com/storage/docs/resumable-uploads), for the
//!   account that began it.

use super::refusal::Refusal;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of the attribute of a list's prefix.
const LIST_PREFIX: &str = "storage.googleapis.com/objectListPrefix";
/// Permissions on objects that roles have.
const ROLES: [(&str, &[&str]); 3] = [
    ("roles/storage.objectCreator", &["storage.objects.create"]),
    ("roles/storage.objectViewer", &["storage.objects.get", "storage.objects.list"]),
    (
        "roles/storage.objectUser",
        &[
            "storage.objects.create",
            "storage.objects.delete",
            "storage.objects.get",
            "storage.objects.list",
            "storage.objects.update",
        ],
    ),
];

/// An account, with all that it was granted.
#[derive(Debug, Clone)]
pub struct StorageAccount {
    /// Its email.
    pub email: String,
    /// Its grants on all buckets.
    pub grants: Vec<StorageGrant>,
}

/// A role that an account has, perhaps under a condition.
#[derive(Debug, Clone)]
pub struct StorageGrant {
    permissions: &'static [&'static str],
    condition: Option<IamCondition>,
}

/// An account's request that its rights did not allow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RightsDenial {
    /// Email of the account.
    pub email: String,
    /// Missing permission.
    pub permission: String,
    /// Full name of the object or bucket.
    pub resource: String,
}

/// A condition: one of its clauses has to hold.
#[derive(Debug, Clone)]
struct IamCondition(Vec<IamClause>);

#[derive(Debug, Clone)]
enum IamClause {
    NameBegins(String),
    ListedPrefixBegins(String),
}

/// Resource that a permission is checked on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IamTarget<'a> {
    Bucket(&'a str),
    /// Objects of a bucket whose names begin with a prefix.
    List(&'a str, &'a str),
    /// Bucket and name of an object.
    Object(&'a str, &'a str),
}

/// Sender of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct StorageCaller {
    /// Absent: the owner, who may do everything.
    account: Option<Arc<StorageAccount>>,
    denials: Arc<Mutex<Vec<RightsDenial>>>,
}

/// All accounts, by their tokens, and what they were denied.
#[derive(Debug, Default)]
pub(crate) struct StorageAccounts {
    by_token: Mutex<BTreeMap<String, Arc<StorageAccount>>>,
    denials: Arc<Mutex<Vec<RightsDenial>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StorageGrant {
    /// Returns a grant of a role under a condition; an empty one always holds.
    ///
    /// # Errors
    ///
    /// If the double does not know the role, or the condition is none that it understands: prefixes of `resource.name` and of
    /// `objectListPrefix`, joined by `||`.
    pub fn new(role: &str, condition: &str) -> Result<StorageGrant, String> {
        let known = ROLES.iter().find(|(name, _)| *name == role).ok_or_else(|| format!("unknown role: {role}"))?;
        let condition = if condition.is_empty() { None } else { Some(IamCondition::parse(condition)?) };
        Ok(StorageGrant { permissions: known.1, condition })
    }

    fn allows(&self, permission: &str, target: IamTarget<'_>) -> bool {
        self.permissions.contains(&permission)
            && self.condition.as_ref().is_none_or(|condition| condition.holds(target))
    }
}

impl IamCondition {
    fn parse(text: &str) -> Result<IamCondition, String> {
        let clause = |text: &str| {
            let text = text.trim().replace('\'', "\"");
            let argument = |start: &str| {
                let quoted = text.strip_prefix(start)?.strip_prefix(".startsWith(\"")?.strip_suffix("\")")?;
                (!quoted.contains(['"', '\\'])).then(|| quoted.to_owned())
            };
            argument("resource.name")
                .map(IamClause::NameBegins)
                .or_else(|| {
                    argument(&format!("api.getAttribute(\"{LIST_PREFIX}\", \"\")")).map(IamClause::ListedPrefixBegins)
                })
                .ok_or_else(|| format!("a condition that the double does not know: {text}"))
        };
        text.split("||").map(clause).collect::<Result<_, _>>().map(IamCondition)
    }

    fn holds(&self, target: IamTarget<'_>) -> bool {
        self.0.iter().any(|clause| match clause {
            IamClause::NameBegins(prefix) => target.name().starts_with(prefix),
            IamClause::ListedPrefixBegins(prefix) => match target {
                IamTarget::List(_, listed) => listed.starts_with(prefix),
                // Other requests do not have the attribute, and its default is empty.
                IamTarget::Bucket(_) | IamTarget::Object(..) => prefix.is_empty(),
            },
        })
    }
}

impl IamTarget<'_> {
    fn name(self) -> String {
        match self {
            IamTarget::Bucket(bucket) | IamTarget::List(bucket, _) => format!("projects/_/buckets/{bucket}"),
            IamTarget::Object(bucket, name) => format!("projects/_/buckets/{bucket}/objects/{name}"),
        }
    }
}

impl StorageCaller {
    /// Email of the account; empty for the owner.
    pub(crate) fn email(&self) -> &str {
        self.account.as_ref().map_or("", |account| &account.email)
    }

    /// Returns true if the caller has the permission.
    pub(crate) fn has(&self, permission: &str, target: IamTarget<'_>) -> bool {
        let grants = self.account.as_ref().map(|account| account.grants.iter());
        grants.is_none_or(|mut grants| grants.any(|grant| grant.allows(permission, target)))
    }

    /// Checks a permission. A denial is recorded.
    pub(crate) fn may(&self, permission: &str, target: IamTarget<'_>) -> Result<(), Refusal> {
        if self.has(permission, target) {
            return Ok(());
        }
        let email = self.email().to_owned();
        let refusal = Refusal::forbidden_to(&email, permission);
        locked(&self.denials).push(RightsDenial { email, permission: permission.to_owned(), resource: target.name() });
        Err(refusal)
    }
}

impl StorageAccounts {
    pub(crate) fn add(&self, token: &str, account: StorageAccount) {
        locked(&self.by_token).insert(token.to_owned(), Arc::new(account));
    }

    /// Returns who sends a request with these headers: the account of its token, or else of the token of the port that it came to.
    pub(crate) fn caller(&self, headers: &HeaderMap, port: Option<&str>) -> Result<StorageCaller, Refusal> {
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let accounts = locked(&self.by_token);
        let account = match header.map(|value| value.strip_prefix("Bearer ").unwrap_or_default()).or(port) {
            // Without any account, tokens mean nothing.
            Some(token) if !accounts.is_empty() => {
                Some(Arc::clone(accounts.get(token).ok_or_else(|| Refusal::fault(401))?))
            }
            _ => None,
        };
        Ok(StorageCaller { account, denials: Arc::clone(&self.denials) })
    }

    pub(crate) fn denials(&self) -> Vec<RightsDenial> {
        locked(&self.denials).clone()
    }
}
