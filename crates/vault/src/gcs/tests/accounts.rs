//! Objects of a job as its account sees them: it may create and read below `jobs/plans/`, and nothing else.

use super::double::ask_with;
use super::*;
use crate::VaultError;
use crate::calls::Calls;
use crate::clock::Boottime;
use crate::jobs::{Claimant, Created, JobObjects, JobPrefix, JobResult};
use crate::protocol::Proven;
use tidelock_storage_double::{Effect, Fault, RightsDenial, StorageAccount, StorageGrant};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const OTHER_KEY: &str = "fedcba9876543210fedcba9876543210";
/// Token and email of the account of the executor `plans`.
const TOKEN: &str = "token-of-plans";
const EMAIL: &str = "plans@acme.iam.gserviceaccount.com";
const CONDITION: &str = r#"resource.name.startsWith("projects/_/buckets/acme-tidelock/objects/prod/jobs/plans/")"#;

/// Gives the account both roles of a job under this condition.
fn grant(double: &StorageDouble, condition: &str) {
    let roles = ["roles/storage.objectCreator", "roles/storage.objectViewer"];
    let grants = roles.iter().map(|role| StorageGrant::new(role, condition).unwrap()).collect();
    double.account(TOKEN, StorageAccount { email: EMAIL.into(), grants });
}

/// Limits for a busy machine, with uploads in pieces from 1 MiB on.
fn limits() -> Limits {
    Limits { attempt: Duration::from_secs(20), call: Duration::from_secs(30), resumable: 1 << 20, ..Limits::default() }
}

fn job(bucket: Arc<dyn Bucket>, executor: &str, key: &str) -> JobObjects {
    JobObjects::new(bucket, Arc::new(Boottime), JobPrefix::new(executor, key).unwrap())
}

/// A job of the executor `plans`, as its leader and as its own account see it.
struct AccountScene {
    double: StorageDouble,
    leader: JobObjects,
    own: JobObjects,
    /// The bucket as the job's account sees it.
    bucket: Arc<dyn Bucket>,
}

impl AccountScene {
    async fn new() -> AccountScene {
        let (double, owner) = open(limits()).await;
        grant(&double, CONDITION);
        let rights = AccountRights::Folder("jobs/plans/".into());
        let endpoint = Some(double.endpoint_of(TOKEN).await.unwrap());
        let options = Options { endpoint, rights, ..options(&double, limits()) };
        let bucket: Arc<dyn Bucket> = Arc::new(Gcs::new(Address::parse("gs://acme-tidelock/prod").unwrap(), options));
        let (leader, own) = (job(Arc::new(owner), "plans", KEY), job(bucket.clone(), "plans", KEY));
        AccountScene { double, leader, own, bucket }
    }

    /// Returns what the account was denied, as permissions and names below the prefix.
    fn denied(&self) -> Vec<(String, String)> {
        let short = |denial: RightsDenial| {
            assert_eq!(denial.email, EMAIL);
            let name = denial.resource.trim_start_matches("projects/_/buckets/acme-tidelock");
            (denial.permission, name.trim_start_matches("/objects/prod/").to_owned())
        };
        self.double.denials().into_iter().map(short).collect()
    }
}

fn is_hidden<T>(read: &Result<T, VaultError>) -> bool {
    matches!(read, Err(VaultError::Bucket(BucketError::Hidden { .. })))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_needs_to_create_and_to_read_only() {
    let AccountScene { double, leader, own, .. } = &AccountScene::new().await;
    assert!(is_hidden(&own.spec::<String>().await), "nobody tells it whether there is one");
    leader.put_spec(&"work").await.unwrap();
    assert_eq!(own.spec::<String>().await.unwrap(), Some("work".into()));
    assert_eq!(own.claim("a").await.unwrap(), Created::Ours);
    assert_eq!(own.claim("b").await.unwrap(), Created::Theirs(Claimant::Attempt("a".into())));
    assert!(is_hidden(&own.cancelled().await));
    leader.cancel("enough").await.unwrap();
    assert_eq!(own.cancelled().await.unwrap(), Some("enough".into()));
    own.put_alive(0).await.unwrap();
    own.put_log(0, Bytes::from_static(b"line\n")).await.unwrap();
    // In several requests.
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, vec![b'x'; (1 << 20) + 5]).unwrap();
    let file = own.put_file("plan", &from).await.unwrap();
    leader.get_file("plan", file, &to).await.unwrap();
    assert_eq!(own.finish("a", "done".into()).await.unwrap(), Created::Ours);
    assert!(matches!(leader.result().await.unwrap(), Some(JobResult::Ended { .. })));
    assert_eq!(double.denials(), [], "it has not tried more than it may");
    let uploads = [Operation::Insert, Operation::UploadStart, Operation::UploadChunk, Operation::UploadStatus];
    let expected = |operation| operation == Operation::Read || uploads.contains(&operation);
    let seen = double.seen();
    let own: Vec<_> = seen.iter().filter(|seen| seen.email == EMAIL).map(|seen| seen.operation).collect();
    assert!(own.contains(&Operation::UploadStart) && own.iter().all(|operation| expected(*operation)), "{own:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_first_is_known_in_whatever_order_rights_and_preconditions_are_checked() {
    for rights_first in [false, true] {
        let AccountScene { double, leader, own, .. } = &AccountScene::new().await;
        double.check_rights_first(rights_first);
        leader.put_spec(&"work").await.unwrap();
        assert_eq!(leader.withdraw("l").await.unwrap(), Created::Ours);
        assert_eq!(own.claim("a").await.unwrap(), Created::Theirs(Claimant::Withdrawn("l".into())));
        leader.give_up("l", "silence").await.unwrap();
        assert!(matches!(own.finish("a", "done".into()).await.unwrap(), Created::Theirs(JobResult::GivenUp { .. })));
        assert!(matches!(leader.late().await.unwrap(), Some(JobResult::Ended { .. })));
        // Its own write whose answer was lost.
        double.fault(Fault::next(Operation::Insert, Effect::ResetAfter).named("/log/"));
        own.put_log(0, Bytes::from_static(b"line\n")).await.unwrap();
        // As large as what is sent in pieces.
        leader.put_log(1, vec![b'x'; 1 << 20].into()).await.unwrap();
        let other = own.put_log(1, vec![b'y'; 1 << 20].into()).await.unwrap_err().to_string();
        assert!(other.contains("another object is there"), "{other}");
        assert_eq!(double.denials().is_empty(), !rights_first);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_told_of_absence_works_as_well() {
    let AccountScene { double, leader, own, .. } = &AccountScene::new().await;
    double.tell_absence(true);
    assert_eq!(own.spec::<String>().await.unwrap(), None);
    leader.put_spec(&"work").await.unwrap();
    assert_eq!(own.claim("a").await.unwrap(), Created::Ours);
    assert_eq!(own.cancelled().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_reaches_nothing_else() {
    let scene = AccountScene::new().await;
    let AccountScene { double, leader, own, bucket } = &scene;
    leader.put_spec(&"work").await.unwrap();
    let owner = Gcs::new(Address::parse("gs://acme-tidelock/prod").unwrap(), options(double, limits()));
    let of_prod = format!("jobs/prod/{OTHER_KEY}/claim");
    let mut there = Vec::new();
    for name in ["journal/0000000000000001", "inbox/1", "lock/leader.json", &of_prod] {
        there.push((name.to_owned(), create(&owner, name, "theirs").await));
    }
    let spec = format!("jobs/plans/{KEY}/spec");
    for (name, generation) in &there {
        assert!(matches!(bucket.get_within(name, 9).await, Err(BucketError::Hidden { .. })), "{name}");
        assert!(bucket.put(name, 0, text("mine"), "").await.is_err(), "{name}");
        assert!(bucket.put(name, *generation, text("mine"), "").await.is_err(), "{name}");
        assert!(bucket.delete(name, *generation).await.is_err(), "{name}");
    }
    let own_generation = owner.get(&spec).await.unwrap().unwrap().generation;
    assert!(bucket.put(&spec, own_generation, text("mine"), "").await.is_err(), "it overwrites nothing");
    let large = Body::Bytes(vec![b'x'; 2 << 20].into());
    assert!(bucket.put(&spec, own_generation, large, "").await.is_err(), "nor in pieces");
    assert!(bucket.delete(&spec, own_generation).await.is_err());
    for folder in ["", "journal/", "jobs/", "jobs/plans/", "jobs/prod/"] {
        assert!(bucket.list(folder, "").await.is_err(), "{folder}");
    }
    // A job of the same executor, whose key would have to be guessed.
    assert!(is_hidden(&own.of(JobPrefix::new("plans", OTHER_KEY).unwrap()).spec::<String>().await));
    for (name, generation) in &there {
        let kept = owner.get(name).await.unwrap().unwrap();
        assert_eq!((kept.generation, &kept.bytes[..]), (*generation, &b"theirs"[..]), "{name}");
    }
    let expected =
        there.iter().flat_map(|(name, _)| ["get", "create", "create", "delete"].map(|what| (what, name.as_str())));
    let on_own = ["delete", "delete", "delete"].map(|what| (what, spec.as_str()));
    let expected = expected.chain(on_own).chain([("list", ""); 5]);
    let expected: Vec<_> = expected.map(|(what, name)| (format!("storage.objects.{what}"), name.to_owned())).collect();
    assert_eq!(scene.denied(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_advice_of_a_refusal_is_the_grant_that_a_job_needs() {
    let AccountScene { double, own, .. } = &AccountScene::new().await;
    double.account(TOKEN, StorageAccount { email: EMAIL.into(), grants: Vec::new() });
    let refused = own.claim("a").await.unwrap_err().to_string();
    assert!(refused.contains("Permission 'storage.objects.create' denied"), "{refused}");
    let unread = own.spec::<String>().await.unwrap_err().to_string();
    assert!(unread.contains("/spec: it does not exist, or this account may not read it: "), "{unread}");
    for text in [refused, unread] {
        assert!(!text.contains(KEY) && !text.contains("objectUser"), "{text}");
        let (_, condition) = text.split_once("--condition='title=jobs,expression=").unwrap();
        let condition = condition.strip_suffix('\'').unwrap();
        assert_eq!(condition, CONDITION);
        for role in ["roles/storage.objectCreator", "roles/storage.objectViewer"] {
            assert!(text.contains(role), "{text}");
        }
    }
    grant(double, CONDITION);
    assert_eq!(own.claim("a").await.unwrap(), Created::Ours);
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_and_tokens_are_held() {
    let AccountScene { double, leader, .. } = &AccountScene::new().await;
    leader.put_spec(&"work").await.unwrap();
    let bearer = |token: &str| format!("Bearer {token}");
    let ask = async |token: &str, path: &str| {
        ask_with(double, "GET", path, &[("authorization", bearer(token).as_str())], "").await.0
    };
    let list = |prefix: &str| format!("/storage/v1/b/acme-tidelock/o?prefix={prefix}");
    assert_eq!(ask("nobodys", &list("")).await, 401);
    assert_eq!(ask(TOKEN, &list("prod/jobs/plans/")).await, 403, "a list has the bucket's name");
    grant(
        double,
        &format!(
            "{CONDITION} || api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('prod/jobs/plans/')"
        ),
    );
    for (prefix, status) in [("prod/jobs/plans/", 200), ("prod/jobs/plans/0", 200), ("prod/jobs/", 403), ("", 403)] {
        assert_eq!(ask(TOKEN, &list(prefix)).await, status, "{prefix}");
    }
    let object = |name: &str| format!("/storage/v1/b/acme-tidelock/o/prod%2Fjobs%2Fplans%2F{KEY}%2F{name}?alt=media");
    assert_eq!(ask(TOKEN, &object("spec")).await, 200);
    assert_eq!(ask(TOKEN, &object("none")).await, 403, "a read has no prefix of a list");
    grant(double, "");
    assert_eq!(ask(TOKEN, &object("none")).await, 404, "who may list is told");
    for wrong in ["resource.name == 'x'", "resource.name.startsWith(\"a\") && true", "resource.name.startsWith(x)"] {
        assert!(StorageGrant::new("roles/storage.objectViewer", wrong).is_err(), "{wrong}");
    }
    assert!(StorageGrant::new("roles/owner", "").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_stores_a_delivery_once_more_with_rights_to_create_and_to_read() {
    for rights_first in [false, true] {
        let (double, _) = open(limits()).await;
        double.check_rights_first(rights_first);
        grant(&double, &CONDITION.replace("jobs/plans/", "inbox/"));
        let endpoint = Some(double.endpoint_of(TOKEN).await.unwrap());
        let options = Options { endpoint, ..options(&double, limits()) };
        let bucket: Arc<dyn Bucket> = Arc::new(Gcs::new(Address::parse("gs://acme-tidelock/prod").unwrap(), options));
        let calls = Calls { bucket, clock: Arc::new(Boottime) };
        for _ in 0..2 {
            calls.create_any(&Proven, "inbox/1", Bytes::from_static(b"delivery"), "delivery").await.unwrap();
        }
        let refused = calls.create_any(&Proven, "journal/1", Bytes::from_static(b"commit"), "commit").await;
        assert!(matches!(refused, Err(BucketError::Refused { .. })), "{refused:?}");
        assert_eq!(double.names(BUCKET), ["prod/inbox/1"]);
    }
}
