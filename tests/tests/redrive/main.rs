//! What was parked or given up is counted by a redrive, exactly once.

mod batches;
mod late;
mod letters;
mod scene;
