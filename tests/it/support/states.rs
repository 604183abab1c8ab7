//! A server that keeps a Terraform state and its lock as a cloud does (the `s3` backend with lock files): a lock stays until it is
//! released.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Objects by path.
#[derive(Clone, Default)]
pub(crate) struct States {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    objects: HashMap<String, Bytes>,
    /// True if locks stay although they are released, as a killed Terraform leaves them.
    sticky: bool,
}

const LOCK: &str = "/b/s.tflock";

impl States {
    /// Starts one. Returns its address too.
    pub(crate) async fn start() -> (States, String) {
        let states = States::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(states.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (states, url)
    }

    /// Returns the lock of the state, as Terraform wrote it.
    pub(crate) fn lock(&self) -> Option<serde_json::Value> {
        let kept = self.kept.lock().unwrap();
        kept.objects.get(LOCK).map(|lock| serde_json::from_slice(lock).unwrap())
    }

    /// Locks the state.
    pub(crate) fn hold(&self, lock: &serde_json::Value) {
        self.kept.lock().unwrap().objects.insert(LOCK.to_owned(), Bytes::from(lock.to_string()));
    }

    /// Makes released locks stay from now on, or not.
    pub(crate) fn sticky(&self, sticky: bool) {
        self.kept.lock().unwrap().sticky = sticky;
    }
}

async fn answer(State(states): State<States>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let mut kept = states.kept.lock().unwrap();
    let path = uri.path().to_owned();
    if uri.query().is_some_and(|query| query.contains("list-type")) {
        let none =
            "<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>";
        return none.into_response();
    }
    match (method.as_str(), kept.objects.get(&path).cloned()) {
        ("GET" | "HEAD", Some(object)) => object.into_response(),
        ("PUT", Some(_)) if headers.contains_key("if-none-match") => StatusCode::PRECONDITION_FAILED.into_response(),
        ("PUT", _) => {
            kept.objects.insert(path, body);
            StatusCode::OK.into_response()
        }
        ("DELETE", _) => {
            if !kept.sticky {
                kept.objects.remove(&path);
            }
            StatusCode::NO_CONTENT.into_response()
        }
        _ => (
            StatusCode::NOT_FOUND,
            "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>none</Message></Error>",
        )
            .into_response(),
    }
}
