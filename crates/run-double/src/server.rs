//! HTTP/1.1 servers on loopback.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Error of a handler. It ends the connection without an answer.
pub(crate) type Broken = Box<dyn Error + Send + Sync>;

/// Accepts connections, and answers each of their requests, as long as it is polled.
pub(crate) async fn accept<H, F, B>(listener: TcpListener, handler: H)
where
    H: Fn(http::Request<Incoming>, SocketAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<http::Response<B>, Broken>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Broken>> + Send + 'static,
{
    // Connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, from)) = listener.accept().await {
        let handler = handler.clone();
        connections.spawn(async move {
            let answer = hyper::service::service_fn(move |request| handler(request, from));
            // The end of a connection, even an error, concerns the client only.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Returns an answer in JSON.
pub(crate) fn json(status: u16, value: &serde_json::Value) -> http::Response<Full<Bytes>> {
    let mut response = http::Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let json = http::HeaderValue::from_static("application/json; charset=UTF-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
