//! What the engine says of policies and plans, and what it refuses.
