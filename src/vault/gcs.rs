//! Cloud Storage through the official client.
