//! Check of a bucket: it has to exist, be writable, and have no settings that lose data.

use super::Gcs;
use super::calls::{CallKind, before};
use super::error::{CallError, grant};
use crate::bucket::{BucketError, probe};
use futures::future::BoxFuture;
use google_cloud_storage::model::Bucket;
use google_cloud_storage::model::bucket::lifecycle::{Rule, rule::Condition};
use google_cloud_wkt::FieldMask;

/// Permissions that the vault needs.
const PERMISSIONS: [&str; 4] =
    ["storage.objects.create", "storage.objects.get", "storage.objects.delete", "storage.objects.list"];
/// Folders directly below the prefix. `tidelock doctor` creates and removes an object in the last one.
const OURS: [&str; 6] = ["lock/", "journal/", "base/", "inbox/", "jobs/", "doctor/"];
/// Maximum number of foreign names that a message shows.
const SHOWN: usize = 5;
/// Fields of the bucket's settings that are checked.
const SETTINGS: [&str; 9] = [
    "name",
    "storage_class",
    "lifecycle",
    "default_event_based_hold",
    "versioning",
    "billing",
    "retention_policy",
    "soft_delete_policy",
    "object_retention",
];

pub(super) async fn check(gcs: &Gcs) -> Result<Vec<String>, BucketError> {
    let mut warnings = Vec::new();
    let bucket = gcs.address.bucket();
    match settings(gcs).await {
        Ok(settings) => {
            if let Some(reason) = loses_data(&settings, gcs.address.prefix(), bucket) {
                return Err(gcs.error("looking at the bucket's settings", CallError::Refused(reason)));
            }
            warnings.extend(costs(&settings, bucket));
        }
        Err(CallError::PermissionDenied(_)) => warnings.push(format!(
            "The bucket's settings could not be looked at, so nobody knows whether a retention policy or a lifecycle rule \
             will delete the state or keep it from being changed. {}",
            grant(bucket, "roles/storage.bucketViewer")
        )),
        Err(answer) => return Err(gcs.error("looking at the bucket", answer)),
    }
    warnings.extend(foreign(gcs).await?);
    may_write(gcs).await?;
    Ok(warnings)
}

async fn settings(gcs: &Gcs) -> Result<Bucket, CallError> {
    let attempt = |end| -> BoxFuture<'_, _> {
        let request = async move {
            let control = gcs.calls.control().await?;
            let request = control.get_bucket().set_name(gcs.address.resource());
            let request = request.set_read_mask(FieldMask::default().set_paths(SETTINGS));
            request.send().await.map_err(|e| CallError::from_error(&e).of_bucket())
        };
        Box::pin(before(end, request))
    };
    gcs.calls.run(CallKind::Check, 0, attempt).await
}

/// Returns true if the lifecycle rule can delete live objects below the prefix. A condition that is not understood is assumed to match.
fn deletes(rule: &Rule, prefix: &str) -> bool {
    let is_deletion = rule.action.as_ref().is_some_and(|action| action.r#type == "Delete");
    let spares = |when: &Condition| {
        let only_old = when.is_live == Some(false)
            || when.num_newer_versions.is_some_and(|versions| versions > 0)
            || when.days_since_noncurrent_time.is_some()
            || when.noncurrent_time_before.is_some();
        // The vault sets no custom time.
        let only_custom = when.days_since_custom_time.is_some() || when.custom_time_before.is_some();
        let meets = |theirs: &String| theirs.starts_with(prefix) || prefix.starts_with(theirs.as_str());
        let elsewhere = !when.matches_prefix.is_empty() && !when.matches_prefix.iter().any(meets);
        only_old || only_custom || elsewhere
    };
    is_deletion && !rule.condition.as_ref().is_some_and(spares)
}

/// Returns the reason why the bucket's settings would lose data; absent if there is none.
fn loses_data(settings: &Bucket, prefix: &str, bucket: &str) -> Option<String> {
    if settings.lifecycle.iter().flat_map(|lifecycle| &lifecycle.rule).any(|rule| deletes(rule, prefix)) {
        return Some(format!(
            "a lifecycle rule of the bucket deletes live objects: it would delete seals and bases, and with them the state. \
             Give the rule matchesPrefix for other objects or isLive=false, or remove it: \
             gcloud storage buckets update gs://{bucket} --clear-lifecycle"
        ));
    }
    let retention = settings.retention_policy.as_ref();
    if let Some(duration) = retention.and_then(|policy| policy.retention_duration) {
        let cure = if retention.is_some_and(|policy| policy.is_locked) {
            "It is locked: take another bucket".to_owned()
        } else {
            format!("Remove it: gcloud storage buckets update gs://{bucket} --clear-retention-period")
        };
        return Some(format!(
            "the bucket's retention policy forbids for {} s to replace or delete an object: the lease could not be renewed. \
             {cure}",
            duration.seconds()
        ));
    }
    settings.default_event_based_hold.then(|| {
        format!(
            "the bucket puts a hold on every new object: the lease could not be renewed. \
             Switch it off: gcloud storage buckets update gs://{bucket} --no-default-event-based-hold"
        )
    })
}

/// Returns warnings about settings that work but cost money or carry a risk.
fn costs(settings: &Bucket, bucket: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    if settings.versioning.as_ref().is_some_and(|versioning| versioning.enabled) {
        warnings.push(format!(
            "Object versioning is on: every renewal of the lease (14,400 a day) and every deleted journal object stays and is \
             billed. Switch it off: gcloud storage buckets update gs://{bucket} --no-versioning, or add a lifecycle rule with \
             numNewerVersions"
        ));
    }
    let kept = settings.soft_delete_policy.as_ref().and_then(|policy| policy.retention_duration);
    if let Some(kept) = kept.filter(|kept| kept.seconds() > 0) {
        warnings.push(format!(
            "Soft delete is on: what is replaced or deleted, every renewal of the lease too, is kept and billed for {} more \
             days. Switch it off: gcloud storage buckets update gs://{bucket} --clear-soft-delete",
            kept.seconds() / 86_400
        ));
    }
    if settings.billing.as_ref().is_some_and(|billing| billing.requester_pays) {
        warnings.push(format!(
            "Requester pays is on: requests without a billing project are refused. Switch it off: \
             gcloud storage buckets update gs://{bucket} --no-requester-pays"
        ));
    }
    if settings.object_retention.as_ref().is_some_and(|retention| retention.enabled) {
        warnings.push(
            "Objects of this bucket can be locked one by one: a locked one of ours could be neither replaced nor deleted"
                .to_owned(),
        );
    }
    if ["NEARLINE", "COLDLINE", "ARCHIVE"].contains(&settings.storage_class.as_str()) {
        warnings.push(format!(
            "The bucket's storage class is {}: each replaced or deleted object is billed for its least time. \
             A STANDARD bucket is much cheaper here",
            settings.storage_class
        ));
    }
    warnings
}

/// Looks for foreign objects directly below the prefix. Returns a warning, or an error if there are only foreign ones.
async fn foreign(gcs: &Gcs) -> Result<Option<String>, BucketError> {
    let attempt = |end| -> BoxFuture<'_, _> {
        let request = async move {
            let control = gcs.calls.control().await?;
            let request = control.list_objects().set_parent(gcs.address.resource()).set_prefix(gcs.address.prefix());
            let request = request.set_delimiter("/").set_read_mask(FieldMask::default().set_paths(["name"]));
            request.send().await.map_err(|e| CallError::from_error(&e).of_bucket())
        };
        Box::pin(before(end, request))
    };
    let doing = "looking at what is there";
    let page = gcs.calls.run(CallKind::Check, 0, attempt).await.map_err(|answer| gcs.error(doing, answer))?;
    let names = page.prefixes.into_iter().chain(page.objects.into_iter().map(|object| object.name));
    let names = names.filter_map(|name| name.strip_prefix(gcs.address.prefix()).map(str::to_owned));
    // An empty name is the prefix itself: consoles create such an object for a folder.
    let (ours, others): (Vec<_>, Vec<_>) =
        names.filter(|name| !name.is_empty()).partition(|name| OURS.contains(&name.as_str()));
    if others.is_empty() {
        return Ok(None);
    }
    let more = if others.len() > SHOWN { ", …" } else { "" };
    let shown = others.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if ours.is_empty() {
        let reason = format!(
            "there are somebody else's objects ({shown}{more}) and none of ours. Take a prefix of its own: {}/tidelock",
            gcs.address.text()
        );
        return Err(gcs.error(doing, CallError::Refused(reason)));
    }
    Ok(Some(format!(
        "There are objects that are not ours: {shown}{more}. They are left alone; a prefix of its own is safer"
    )))
}

/// Asks for the permissions. If any is missing or the question is refused, tries them on a small object: they may be granted for the
/// prefix only.
async fn may_write(gcs: &Gcs) -> Result<(), BucketError> {
    let attempt = |end| -> BoxFuture<'_, _> {
        let request = async move {
            let control = gcs.calls.control().await?;
            let request = control.test_iam_permissions().set_resource(gcs.address.resource());
            request.set_permissions(PERMISSIONS).send().await.map_err(|e| CallError::from_error(&e))
        };
        Box::pin(before(end, request))
    };
    match gcs.calls.run(CallKind::Check, 0, attempt).await {
        Ok(has) if PERMISSIONS.iter().all(|wanted| has.permissions.iter().any(|p| p == wanted)) => return Ok(()),
        Err(answer @ CallError::Unanswered(_)) => return Err(gcs.error("asking for our rights", answer)),
        _ => {}
    }
    // The same name each time, so that a later check removes the object that an interrupted one left.
    probe::probe(gcs, &gcs.probe).await.map(drop)
}
