//! The forge's listener. A handler can reset the connection of its request, as a crashing server does.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Accepts connections that come with a [`ResetSwitch`].
pub(super) struct ResettableListener(pub TcpListener);

/// A connection that ends with a reset once its switch is thrown.
pub(super) struct Connection {
    stream: TcpStream,
    switch: CancellationToken,
    thrown: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Resets the connection that a request came on.
#[derive(Clone)]
pub(super) struct ResetSwitch(CancellationToken);

impl ResetSwitch {
    /// Resets the connection and never returns: the server drops the request's future with it.
    pub(super) async fn reset(self) -> std::convert::Infallible {
        self.0.cancel();
        std::future::pending().await
    }
}

impl Listener for ResettableListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        // Answers in several pieces would wait for the client's delayed acknowledgement, 40 ms each.
        let _ = stream.set_nodelay(true);
        let switch = CancellationToken::new();
        let thrown = Box::pin(switch.clone().cancelled_owned());
        (Connection { stream, switch, thrown }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, ResettableListener>> for ResetSwitch {
    fn connect_info(stream: IncomingStream<'_, ResettableListener>) -> ResetSwitch {
        ResetSwitch(stream.io().switch.clone())
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // hyper keeps reading during a request, to notice clients that disconnect; so the reset happens at once.
        if self.thrown.as_mut().poll(cx).is_ready() {
            // With zero linger, closing sends a reset instead of an ordinary end.
            let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
