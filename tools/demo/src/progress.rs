//! Progress bars: how far the clients are, and how far the rollup is behind them.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// A bar for the clients and one for the rollup; they show nothing where there is no terminal.
#[derive(Clone, Debug)]
pub struct Progress {
    clients: ProgressBar,
    rollup: ProgressBar,
}

impl Progress {
    /// Bars for a run of this many client writes.
    pub fn new(writes: usize) -> anyhow::Result<Self> {
        let style = ProgressStyle::with_template("{prefix:<18} {bar:40} {pos:>9} of {len:<9} {per_sec} {msg}")?;
        let bars = MultiProgress::new();
        let bar = |prefix| bars.add(ProgressBar::new(0).with_style(style.clone()).with_prefix(prefix));
        let (clients, rollup) = (bar("clients wrote"), bar("records delivered"));
        clients.set_length(u64::try_from(writes)?);
        Ok(Self { clients, rollup })
    }

    /// A client made a write.
    pub fn wrote(&self) {
        self.clients.inc(1);
    }

    /// The stream was read: this many records are to be delivered.
    pub fn read(&self, records: usize) {
        self.rollup.inc_length(records as u64);
    }

    /// The function has settled this many records.
    pub fn delivered(&self, records: usize) {
        self.rollup.inc(records as u64);
    }

    /// Leaves the bars as they are.
    pub fn finish(&self) {
        self.clients.finish();
        self.rollup.finish();
    }
}
