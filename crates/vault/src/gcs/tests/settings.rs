//! `check`: buckets that are refused, that cost money, and that are fine.

use super::*;
use tidelock_storage_double::Rule;

async fn checked(settings: Settings) -> Result<Vec<String>, String> {
    let (double, gcs) = open(short()).await;
    double.bucket(BUCKET, settings);
    let checked = gcs.check().await.map_err(|error| error.to_string());
    assert!(double.names(BUCKET).is_empty(), "a check leaves nothing");
    checked
}

fn rule(rule: Rule) -> Settings {
    Settings { lifecycle: vec![rule], ..Settings::default() }
}

fn deletion() -> Rule {
    Rule { action: "Delete".into(), ..Rule::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_bucket_is_fine_in_three_requests_without_a_write() {
    let (double, gcs) = open(short()).await;
    assert_eq!(gcs.check().await.unwrap(), Vec::<String>::new());
    let counts: Vec<_> = double.counts().into_iter().collect();
    assert_eq!(counts, [(Operation::List, 1), (Operation::GetBucket, 1), (Operation::TestPermissions, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_delete_live_objects_are_refused() {
    for harmful in [
        Rule { age_days: Some(30), ..deletion() },
        Rule { age_days: Some(30), is_live: Some(true), ..deletion() },
        Rule { newer_versions: Some(0), ..deletion() },
        Rule { age_days: Some(30), prefixes: vec!["logs/".into(), "prod/journal/".into()], ..deletion() },
        Rule { age_days: Some(30), prefixes: vec!["pr".into()], ..deletion() },
        deletion(),
    ] {
        let error = checked(rule(harmful.clone())).await.unwrap_err();
        assert!(error.contains("it would delete seals") && error.contains("--clear-lifecycle"), "{harmful:?}: {error}");
    }
    for harmless in [
        Rule { newer_versions: Some(3), ..deletion() },
        Rule { age_days: Some(30), is_live: Some(false), ..deletion() },
        Rule { days_since_noncurrent: Some(7), ..deletion() },
        Rule { days_since_custom_time: Some(7), ..deletion() },
        Rule { age_days: Some(30), prefixes: vec!["logs/".into(), "production/".into()], ..deletion() },
        Rule { action: "AbortIncompleteMultipartUpload".into(), age_days: Some(7), ..Rule::default() },
    ] {
        assert_eq!(checked(rule(harmless.clone())).await, Ok(Vec::new()), "{harmless:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_objects_from_being_changed_is_refused() {
    let retention = checked(Settings { retention: Some(86_400), ..Settings::default() }).await.unwrap_err();
    insta::assert_snapshot!(retention, @"gs://acme-tidelock/prod: looking at the bucket's settings: the bucket's retention policy forbids for 86400 s to replace or delete an object: the lease could not be renewed. Remove it: gcloud storage buckets update gs://acme-tidelock --clear-retention-period");
    let hold = checked(Settings { event_based_hold: true, ..Settings::default() }).await.unwrap_err();
    insta::assert_snapshot!(hold, @"gs://acme-tidelock/prod: looking at the bucket's settings: the bucket puts a hold on every new object: the lease could not be renewed. Switch it off: gcloud storage buckets update gs://acme-tidelock --no-default-event-based-hold");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_costs_is_a_warning() {
    let settings = Settings {
        versioning: true,
        soft_delete: Some(604_800),
        object_retention: true,
        storage_class: "NEARLINE".into(),
        ..Settings::default()
    };
    insta::assert_snapshot!(checked(settings).await.unwrap().join("\n"), @r"
    Object versioning is on: every renewal of the lease (14,400 a day) and every deleted journal object stays and is billed. Switch it off: gcloud storage buckets update gs://acme-tidelock --no-versioning, or add a lifecycle rule with numNewerVersions
    Soft delete is on: what is replaced or deleted, every renewal of the lease too, is kept and billed for 7 more days. Switch it off: gcloud storage buckets update gs://acme-tidelock --clear-soft-delete
    Objects of this bucket can be locked one by one: a locked one of ours could be neither replaced nor deleted
    The bucket's storage class is NEARLINE: each replaced or deleted object is billed for its least time. A STANDARD bucket is much cheaper here
    ");
    assert_eq!(checked(Settings { soft_delete: Some(0), ..Settings::default() }).await, Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_whose_settings_are_hidden_is_used_with_a_warning() {
    let settings = Settings { denied: vec!["storage.buckets.get"], ..Settings::default() };
    insta::assert_snapshot!(checked(settings).await.unwrap().join("\n"), @"The bucket's settings could not be looked at, so nobody knows whether a retention policy or a lifecycle rule will delete the state or keep it from being changed. Grant roles/storage.bucketViewer on the bucket: gcloud storage buckets add-iam-policy-binding gs://acme-tidelock --member=serviceAccount:ACCOUNT --role=roles/storage.bucketViewer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_missing_read_only_or_paid_by_requesters_is_refused() {
    let (double, gcs) = open(short()).await;
    double.remove_bucket(BUCKET);
    insta::assert_snapshot!(gcs.check().await.unwrap_err(), @"gs://acme-tidelock/prod: looking at the bucket: the bucket does not exist. Create it: gcloud storage buckets create gs://acme-tidelock --location=REGION --uniform-bucket-level-access");
    let denied = vec!["storage.objects.create", "storage.objects.delete"];
    let error = checked(Settings { denied, ..Settings::default() }).await.unwrap_err();
    let (probe, error) = error.split_once(": tidelock@").unwrap();
    assert!(probe.starts_with("gs://acme-tidelock/prod: writing lock/probe-"), "{probe}");
    insta::assert_snapshot!(error, @"example.iam.gserviceaccount.com does not have storage.objects.create access to the Google Cloud Storage object. Permission 'storage.objects.create' denied on resource (or it may not exist). Grant roles/storage.objectUser on the bucket: gcloud storage buckets add-iam-policy-binding gs://acme-tidelock --member=serviceAccount:ACCOUNT --role=roles/storage.objectUser");
    let denied = vec!["storage.objects.list"];
    let error = checked(Settings { denied, ..Settings::default() }).await.unwrap_err();
    assert!(error.contains("storage.objects.list") && error.contains("roles/storage.objectUser"), "{error}");
    let error = checked(Settings { requester_pays: true, ..Settings::default() }).await.unwrap_err();
    assert!(error.contains("requester pays"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_hold_for_the_prefix_only_are_tried_on_an_object() {
    let (double, gcs) = open(Limits { call: Duration::from_secs(5), ..short() }).await;
    // Permissions on the whole bucket are fewer than those below the prefix.
    double.fault(tidelock_storage_double::Fault::next(
        Operation::TestPermissions,
        tidelock_storage_double::Effect::Fail(403),
    ));
    double.limit_mutations(true);
    assert_eq!(gcs.check().await.unwrap(), Vec::<String>::new());
    let counts = double.counts();
    assert_eq!((counts[&Operation::Insert], counts[&Operation::Read]), (1, 1));
    assert!(double.names(BUCKET).is_empty(), "the probe is gone again");
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_objects_are_named() {
    let (double, gcs) = open(short()).await;
    let root = Gcs::new(Address::parse("gs://acme-tidelock").unwrap(), options(&double, short()));
    for name in ["prod/terraform.tfstate", "prod/logs/2026/x", "prod/logs/2026/y"] {
        create(&root, name, "x").await;
    }
    insta::assert_snapshot!(gcs.check().await.unwrap_err(), @"gs://acme-tidelock/prod: looking at what is there: there are somebody else's objects (logs/, terraform.tfstate) and none of ours. Take a prefix of its own: gs://acme-tidelock/prod/tidelock");
    create(&gcs, "journal/1", "x").await;
    insta::assert_snapshot!(gcs.check().await.unwrap().join("\n"), @"There are objects that are not ours: logs/, terraform.tfstate. They are left alone; a prefix of its own is safer");
}
