//! A gate that holds calls until a test opens it.

use tokio::sync::watch;

/// Holds calls. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(watch::Sender<GateState>);

#[derive(Clone, Copy, Debug, Default)]
struct GateState {
    is_open: bool,
    /// Calls that wait, or that passed and are not done.
    held: usize,
}

impl Gate {
    /// A gate that is closed.
    pub fn closed() -> Self {
        Self::default()
    }

    /// Waits until at least so many calls are held.
    pub async fn holds(&self, calls: usize) {
        // Fails only without a sender, and this is one.
        let _ = self.0.subscribe().wait_for(|state| state.held >= calls).await;
    }

    /// Opens for the calls that are held and for all later ones. Returns when those that were held are done.
    pub async fn open(&self) {
        self.0.send_modify(|state| state.is_open = true);
        let _ = self.0.subscribe().wait_for(|state| state.held == 0).await;
    }

    /// Waits until the gate is open. The call is done when the result is dropped.
    pub(crate) async fn pass(&self) -> Passing {
        self.0.send_modify(|state| state.held += 1);
        let passing = Passing(self.0.clone());
        let _ = self.0.subscribe().wait_for(|state| state.is_open).await;
        passing
    }
}

/// A call that was held, until it is done.
#[derive(Debug)]
pub(crate) struct Passing(watch::Sender<GateState>);

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.held -= 1);
    }
}
