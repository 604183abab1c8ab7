//! Tests of a leading server's services on a bucket in memory, with a fake host over HTTP and faults of the bucket at chosen moments.

use super::services::Parts;
use super::{hosts, inbox};
use crate::sandbox::{Forge, ForgeOptions, OpenOptions, Pull};
use crate::server_status::Services;
use crate::settings::Settings;
use crate::store::Store;
use crate::vault::inbox::{InboxEntry, InboxEntryKind, StoredDelivery};
use crate::vault::memory::{Manual, Memory, RequestFault, vault};
use crate::vault::{FORMAT, Hash, lease};
use base64::Engine as _;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Time limit of work that the server does by itself.
const LIMIT: Duration = Duration::from_secs(60);

struct Led {
    forge: Forge,
    bucket: Arc<Memory>,
    clock: Arc<Manual>,
    parts: Parts,
    ready: Arc<Services>,
    tmp: PathBuf,
    _dir: tempfile::TempDir,
}

impl Led {
    /// Starts with one repository and one project, whose apply appends a line to `applied`.
    async fn start() -> (Led, Pull) {
        let dir = tempfile::tempdir().unwrap();
        let tmp = dir.path().canonicalize().unwrap();
        let forge = Forge::start(ForgeOptions { dir: tmp.join("forge"), port: 0 }).await.unwrap();
        let repo = forge.create_repo("acme/infra", &[("main.tf", "")]).await.unwrap();
        // No server listens there: the forge keeps deliveries, and the test takes them from it.
        forge.set_webhook("http://127.0.0.1:9/events");
        let rules = format!(
            "repos:\n- {{id: /.*/, workflow: w}}\nworkflows:\n  w:\n    plan: {{steps: [{{run: 'echo planned'}}]}}\n    \
             apply: {{steps: [{{run: 'echo applied >> {}/applied'}}]}}\n",
            tmp.display()
        );
        std::fs::write(tmp.join("repos.yaml"), rules).unwrap();
        let flags = [
            format!("--data-dir={}", tmp.join("data").display()),
            format!("--gh-hostname={}", forge.hostname_setting()),
            format!("--gh-user={}", forge.bot()),
            format!("--gh-token={}", forge.token().expose_secret()),
            format!("--gh-webhook-secret={}", forge.webhook_secret().expose_secret()),
            format!("--repo-config={}", tmp.join("repos.yaml").display()),
            "--atlantis-url=http://tidelock.test".into(),
            "--repo-allowlist=*".into(),
            "--emoji-reaction=".into(),
            "--tf-download=false".into(),
        ];
        let environment = [("PATH".into(), std::env::var_os("PATH").unwrap()), ("HOME".into(), tmp.clone().into())];
        let settings = Settings::load(flags.into_iter().map(OsString::from), environment).ok().unwrap();
        let data_dir = settings.data_dir.clone();
        std::fs::create_dir_all(&data_dir).unwrap();
        let bucket = Memory::new();
        let (vault, clock) = vault(&bucket, "a");
        let lease = vault.acquire().await.unwrap();
        let (leader, chain) = vault.lead(lease).await.unwrap().unwrap();
        Store::restore(&data_dir, &chain).await.unwrap();
        let store = Store::lead(&data_dir, leader.clone()).await.unwrap();
        let joined = hosts::join(&settings, &[]).unwrap();
        let parts = Parts::new(Arc::new(settings), &joined).unwrap();
        let ready = parts.start(store, leader, bucket.clone(), Arc::new(Notify::new())).await.unwrap();
        let led = Led { forge, bucket, clock, parts, ready: Arc::new(ready), tmp, _dir: dir };
        let changes = [("main.tf", Some("# changed"))];
        let pull = repo.open_pull("change", "alice", "A change", &changes, OpenOptions::default()).await.unwrap();
        (led, pull)
    }

    /// Records the latest delivery as one that another server accepted and left in the inbox; returns the recorded entries.
    async fn take_latest(&self) -> Vec<InboxEntry> {
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let delivery = self.forge.deliveries().pop().unwrap();
        let mut mac =
            <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(self.forge.webhook_secret().expose_secret().as_bytes())
                .unwrap();
        mac.update(delivery.body.as_bytes());
        let stored = StoredDelivery {
            format: FORMAT,
            received: Timestamp::now(),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("x-github-event".into(), delivery.event.clone()),
                ("x-github-delivery".into(), delivery.guid.clone()),
                ("x-hub-signature-256".into(), format!("sha256={}", hex::encode(mac.finalize().into_bytes()))),
            ],
            body: base64::engine::general_purpose::STANDARD.encode(&delivery.body),
            key: None,
        };
        let entry = InboxEntry {
            name: format!("inbox/delivery/{}", Hash::of(delivery.body.as_bytes())),
            generation: 1,
            created: Timestamp::now(),
            kind: InboxEntryKind::Delivery,
        };
        let (event, received) = inbox::open(stored, self.parts.intake.clone()).await.unwrap().unwrap();
        inbox::record(&self.ready, vec![(entry, event, received)]).await
    }

    /// Waits until no comment, status or reaction is left to post.
    async fn all_said(&self) {
        let said = async {
            while !self.ready.store.read(|view| view.pending_effects(None, 1)).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, said).await.expect("something is not said");
    }

    /// Makes another server the leader, and moves this server's clock past its deadline.
    fn depose(bucket: &Memory, clock: &Manual) {
        let mut record: lease::Record = serde_json::from_slice(&bucket.object(lease::NAME).bytes).unwrap();
        record.epoch += 1;
        record.holder.as_mut().unwrap().nonce = "b".into();
        bucket.set(lease::NAME, serde_json::to_vec(&record).unwrap(), "lease");
        clock.advance(Duration::from_secs(60));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_could_not_be_recorded_stays_in_the_inbox() {
    let (led, pull) = Led::start().await;
    led.bucket.fail("put", "journal/", RequestFault::Refused);
    assert_eq!(led.take_latest().await, [], "it would be deleted");
    assert_eq!(led.take_latest().await.len(), 1);
    pull.wait_for_comment(0, LIMIT).await.unwrap();
    led.ready.dispatch.shut_down(LIMIT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terraform_does_not_start_when_another_server_leads_since_the_beginning_was_committed() {
    let (led, pull) = Led::start().await;
    assert_eq!(led.take_latest().await.len(), 1);
    pull.wait_for_comment(0, LIMIT).await.unwrap();
    led.all_said().await;
    pull.comment("alice", "atlantis apply").unwrap();
    let (clock, logs) = (Arc::clone(&led.clock), led.tmp.join("data/logs"));
    let mut done = false;
    led.bucket.before(move |bucket, kind, name| {
        // The apply's log exists right before its beginning is committed, beside the plan's.
        let logs = std::fs::read_dir(&logs).map(Iterator::count).unwrap_or_default();
        if kind == "put" && name.starts_with("journal/") && logs == 2 && !std::mem::replace(&mut done, true) {
            Led::depose(bucket, &clock);
        }
    });
    assert_eq!(led.take_latest().await.len(), 1);
    tokio::time::timeout(LIMIT, led.ready.leader.deposed()).await.expect("it looks at its deadline");
    led.ready.dispatch.stop_posting();
    tokio::time::timeout(LIMIT, led.ready.dispatch.wind_down()).await.unwrap();
    let begun = led.ready.store.read(|view| view.unfinished_jobs()).await.unwrap();
    assert_eq!(begun.iter().map(|job| job.kind.as_str()).collect::<Vec<_>>(), ["apply"], "its beginning is committed");
    assert!(!led.tmp.join("applied").exists(), "and it did not start");
}
