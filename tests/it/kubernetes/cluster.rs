//! A namespace of the cluster that `scripts/with-cluster` has started, and faults of its stand-in for the kubelet.

use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Label of Jobs with the hash of the job's prefix.
pub(crate) const JOBS: &str = "tidelock/job";
/// Longest wait for what the cluster does.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A namespace with the accounts of a server and of its jobs.
pub(crate) struct Cluster {
    url: String,
    control: String,
    /// Directory of the API server.
    dir: PathBuf,
    namespace: String,
    client: reqwest::Client,
    files: TempDir,
}

impl Cluster {
    /// Makes a namespace, and a server's account with these rights at Jobs.
    pub(crate) async fn new(rights: &[&str]) -> Cluster {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // The forge does so only later; a second time is refused, and does not matter.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let named = std::env::var("TIDELOCK_TEST_KUBE").expect("scripts/with-cluster starts one");
        let words: Vec<&str> = named.split_whitespace().collect();
        let [url, control, dir] = words[..] else { panic!("TIDELOCK_TEST_KUBE is URL CONTROL-URL DIRECTORY: {named}") };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let cluster = Cluster {
            url: url.to_owned(),
            control: control.to_owned(),
            dir: PathBuf::from(dir),
            namespace: format!("t{}-{number}", std::process::id()),
            client: reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build().unwrap(),
            files: tempfile::tempdir().unwrap(),
        };
        let kind = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": cluster.namespace}});
        cluster.made("/api/v1/namespaces", kind).await;
        for account in ["server", "plan"] {
            cluster.made(&cluster.of("/api/v1", "serviceaccounts"), json!({"metadata": {"name": account}})).await;
        }
        let rules = json!([
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": rights},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        ]);
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        cluster.made(&cluster.of(rbac, "roles"), json!({"metadata": {"name": "server"}, "rules": rules})).await;
        let binding = json!({
            "metadata": {"name": "server"}, "subjects": [{"kind": "ServiceAccount", "name": "server"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "server"},
        });
        cluster.made(&cluster.of(rbac, "rolebindings"), binding).await;
        let token = json!({"spec": {"expirationSeconds": 3600}});
        let token = cluster.made(&cluster.of("/api/v1", "serviceaccounts/server/token"), token).await;
        cluster.write_kubeconfig(token["status"]["token"].as_str().unwrap());
        cluster
    }

    fn write_kubeconfig(&self, token: &str) {
        let named = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {
                "server": self.url, "certificate-authority": self.dir.join("certs/apiserver.crt"),
            }}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": self.namespace}}],
        });
        std::fs::write(self.kubeconfig(), named.to_string()).unwrap();
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    /// Writes the template of an executor whose pods run this binary and have these annotations: faults of the stand-in for the kubelet.
    pub(crate) fn template(&self, binary: &OsStr, notes: &[(&str, &str)]) -> PathBuf {
        let notes: serde_json::Map<String, Value> =
            notes.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let soon = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1});
        let tolerations = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(soon);
        let template = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "spec": {"template": {"metadata": {"annotations": notes}, "spec": {
                "serviceAccountName": "plan",
                "tolerations": tolerations,
                "containers": [{
                    "name": "job", "image": "tidelock", "command": [binary.to_str().unwrap()],
                    "env": [{"name": "CHECKPOINT_DISABLE", "value": "1"}],
                }],
            }}},
        });
        let path = self.files.path().join("job.yaml");
        std::fs::write(&path, template.to_string()).unwrap();
        path
    }

    fn of(&self, group: &str, kind: &str) -> String {
        format!("{group}/namespaces/{}/{kind}", self.namespace)
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.url)).bearer_auth("admin");
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let text = body.map(|body| body.to_string()).unwrap_or_default();
        let answer = request.header("content-type", kind).body(text).send().await.unwrap();
        (answer.status().as_u16(), serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
    }

    async fn made(&self, path: &str, object: Value) -> Value {
        let (status, answer) = self.call("POST", path, Some(object)).await;
        assert!(matches!(status, 200 | 201), "{path}: {status} {answer}");
        answer
    }

    async fn listed(&self, path: &str) -> Vec<Value> {
        let (status, answer) = self.call("GET", path, None).await;
        assert_eq!(status, 200, "{answer}");
        answer["items"].as_array().unwrap().clone()
    }

    /// Returns the Jobs of the namespace, oldest first.
    pub(crate) async fn jobs(&self) -> Vec<Value> {
        let mut jobs = self.listed(&self.of("/apis/batch/v1", "jobs")).await;
        jobs.sort_by_key(|job| job["metadata"]["creationTimestamp"].to_string());
        jobs
    }

    async fn until(&self, what: &str, so: impl AsyncFn() -> bool) {
        let looking = async {
            while !so().await {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(LIMIT, looking).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
    }

    /// Waits until all Jobs have finished.
    pub(crate) async fn all_finished(&self) {
        self.until("all Jobs have finished", async || {
            let is_done = |one: &Value| matches!(one["type"].as_str(), Some("Complete" | "Failed"));
            let has_finished =
                |job: &Value| job["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_done));
            self.jobs().await.iter().all(has_finished)
        })
        .await;
    }

    /// Returns the name of the only pod that runs.
    pub(crate) async fn running_pod(&self) -> String {
        let pods = self.listed(&self.of("/api/v1", "pods")).await;
        let mut running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
        let name = running.next().expect("no pod runs")["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(running.next().is_none(), "several pods run");
        name
    }

    /// Deletes all Jobs, as people do.
    pub(crate) async fn delete_jobs(&self) {
        for job in self.jobs().await {
            let path = self.of("/apis/batch/v1", &format!("jobs/{}", job["metadata"]["name"].as_str().unwrap()));
            let (status, answer) = self.call("DELETE", &path, Some(json!({"propagationPolicy": "Background"}))).await;
            assert_eq!(status, 200, "{answer}");
        }
    }

    /// Allows so many Jobs, and waits until that holds.
    pub(crate) async fn quota(&self, jobs: u32) {
        let path = self.of("/api/v1", "resourcequotas");
        let spec = json!({"hard": {"count/jobs.batch": jobs.to_string()}});
        let made = json!({"metadata": {"name": "jobs"}, "spec": spec});
        if self.call("POST", &path, Some(made)).await.0 == 409 {
            let (status, answer) = self.call("PATCH", &format!("{path}/jobs"), Some(json!({"spec": spec}))).await;
            assert_eq!(status, 200, "{answer}");
        }
        let wanted = jobs.to_string();
        self.until("the quota is counted", async || {
            let (_, quota) = self.call("GET", &format!("{path}/jobs"), None).await;
            quota["status"]["hard"]["count/jobs.batch"] == wanted
        })
        .await;
    }

    /// Tells the stand-in for the kubelet to do something. Returns false if the pod does not run.
    async fn try_control(&self, path: &str) -> bool {
        let answer = self.client.post(format!("{}{path}", self.control)).send().await.unwrap();
        match answer.status().as_u16() {
            204 => true,
            404 => false,
            other => panic!("{path}: {other}"),
        }
    }

    async fn control(&self, path: &str) {
        assert!(self.try_control(path).await, "{path}");
    }

    /// Lets a pod have a fault. Returns false if it does not run any more.
    pub(crate) async fn fault(&self, pod: &str, fault: &str) -> bool {
        self.try_control(&format!("/{pod}/{fault}")).await
    }

    pub(crate) async fn slots(&self, slots: u32) {
        self.control(&format!("/slots/{slots}")).await;
    }

    pub(crate) async fn node(&self, what: &str) {
        self.control(&format!("/node/{what}")).await;
    }

    /// Ends the API server and all that belongs to it, and waits until `scripts/with-cluster` has started it again.
    pub(crate) async fn restart(&self) {
        let pid = || std::fs::read_to_string(self.dir.join("pid")).unwrap_or_default().trim().parse::<i32>().ok();
        let old = pid().unwrap();
        let process = rustix::process::Pid::from_raw(old).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        self.until("the API server runs again", async || {
            let answer = self.client.get(format!("{}/readyz", self.url)).bearer_auth("admin").send().await;
            pid().is_some_and(|now| now != old) && answer.is_ok_and(|answer| answer.status().is_success())
        })
        .await;
    }
}
