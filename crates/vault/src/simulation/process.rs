//! A running server: its future, polled by an engine on this thread.

use super::port::Port;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A running server: its future and its port.
pub(super) struct Process {
    pub(super) port: Port,
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    flag: Arc<Flag>,
}

impl Process {
    pub(super) fn new(port: Port, future: impl Future<Output = ()> + 'static) -> Process {
        Process { port, future: Some(Box::pin(future)), flag: Arc::new(Flag(AtomicBool::new(true))) }
    }

    /// Runs the server until it waits for an answer. It must not wait for anything else, or a run would not be repeatable.
    pub(super) fn run(&mut self) {
        let waker = Waker::from(self.flag.clone());
        while let Some(future) = &mut self.future {
            if !self.flag.0.swap(false, Ordering::SeqCst) {
                assert!(self.port.waits(), "a simulated server waits for something outside the simulation");
                return;
            }
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.future = None;
            }
        }
    }

    pub(super) fn ended(&self) -> bool {
        self.future.is_none()
    }
}
