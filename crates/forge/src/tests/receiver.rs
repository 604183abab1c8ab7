//! A receiver of deliveries.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::HeaderMap;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// Deliveries that a receiver has got: headers and body.
pub(crate) type Received = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Starts a receiver on loopback and returns its address. It ends with the runtime of the test.
pub(crate) async fn receiver() -> (String, Received) {
    let received = Received::default();
    let take = async |State(received): State<Received>, headers: HeaderMap, body: Bytes| {
        received.lock().unwrap().push((headers, String::from_utf8(body.to_vec()).unwrap()));
    };
    let app = Router::new().fallback(take).with_state(received.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/events", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, received)
}
