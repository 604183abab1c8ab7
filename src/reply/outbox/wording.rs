//! The wording of comments that the outbox itself makes. It changes when the configuration does.

use super::Outbox;
use crate::render::RenderOptions;
use std::sync::{Arc, PoisonError, RwLock};

/// The present wording.
pub(super) struct PresentWording(RwLock<Arc<RenderOptions>>);

impl PresentWording {
    pub(super) fn new(rendering: RenderOptions) -> PresentWording {
        PresentWording(RwLock::new(Arc::new(rendering)))
    }

    pub(super) fn get(&self) -> Arc<RenderOptions> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Outbox {
    /// Replaces the wording of comments that are made from now on.
    pub fn word_as(&self, rendering: RenderOptions) {
        *self.shared.rendering.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rendering);
    }
}
