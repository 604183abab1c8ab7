//! Accepts connections of a port, and serves the router on them.

use super::watched::{AnsweringBody, Watched};
use super::{Connection, Connections, Phase, SWEEP};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Limit of a request's headers, and of the unread bytes of a body, in bytes.
const BUFFER: usize = 32 << 10;

/// Serves a port until it is closed; requests that are being answered then may continue. `handshake` turns a connection into a stream for
/// HTTP, or returns none if it has responded by itself.
pub(crate) async fn serve<H, F, S>(
    mut port: TcpListener,
    handshake: H,
    router: Router,
    connections: Arc<Connections>,
    closing: CancellationToken,
) where
    H: Fn(TcpStream) -> F,
    F: Future<Output = io::Result<Option<S>>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = TaskTracker::new();
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let (stream, peer) = tokio::select! {
            // Like an axum listener, which waits and continues when there are no descriptors left.
            accepted = Listener::accept(&mut port) => accepted,
            _ = sweep.tick() => {
                connections.sweep(Instant::now());
                continue;
            }
            () = closing.cancelled() => break,
        };
        let Some(connection) = connections.admit(peer.ip().to_canonical()) else { continue };
        // Small responses are sent at once.
        let _ = stream.set_nodelay(true);
        let (shaking, router, closing) = (handshake(stream), router.clone(), closing.clone());
        tasks.spawn(async move {
            let end = connection.end.clone();
            let talking = async {
                match shaking.await {
                    Ok(Some(stream)) => talk(stream, peer, router, connection, closing).await,
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%peer, "a connection failed: {error}"),
                }
            };
            tokio::select! {
                () = talking => {}
                () = end.cancelled() => tracing::debug!(%peer, "a connection was closed: its time was over, or others needed its place"),
            }
        });
    }
    drop(port);
    tasks.close();
    tasks.wait().await;
}

/// Answers the requests of one connection.
async fn talk<S>(stream: S, peer: SocketAddr, router: Router, connection: Arc<Connection>, closing: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Watched::new(stream, Arc::clone(&connection)));
    let service = service_fn(move |request: Request<Incoming>| {
        connection.enter(Phase::Answer);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(Arc::clone(&connection));
        let (answering, connection) = (TowerToHyperService::new(router.clone()).call(request), Arc::clone(&connection));
        async move {
            let response = answering.await?;
            Ok::<_, Infallible>(response.map(|body| AnsweringBody { body, connection }))
        }
    });
    let mut serving = pin!(http1::Builder::new().max_buf_size(BUFFER).serve_connection(io, service));
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, "a connection ended: {error}");
    }
}
