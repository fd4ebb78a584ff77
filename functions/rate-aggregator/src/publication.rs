//! The summary, written unless a newer one is there.

use tidegate_aws::{
    concurrent::within,
    error::CallError,
    rates::{RateFiles, Replaced, text},
};
use tidegate_domain::rates::{
    Cutoff, Field,
    summary::{Previous, Replacement, Summary, decide_replacement},
};

use crate::{job::Outcome, time::Times};

/// How often a summary is tried that others overtake. Each time, somebody's summary was written, and almost always it
/// is a newer one.
const ATTEMPTS: usize = 8;

/// The summary that is there, as this process has read or written it last.
#[derive(Clone, Debug)]
pub(crate) struct LastSummary {
    /// Which content it has, and what it says; `None` if there is none.
    summary: Option<(String, Previous)>,
}

/// Writes a summary in the place of an older one. `seen` is what is known of that, and then of what is there.
pub(crate) async fn publish(
    files: &RateFiles,
    prefix: &str,
    seen: &mut Option<LastSummary>,
    mut summary: Summary,
    cutoff: Cutoff,
    times: Times,
) -> Result<Outcome, CallError> {
    let (mut tried, deadline) = (None, times.write_by);
    for _ in 0..ATTEMPTS {
        let there = if let Some(there) = seen.take() {
            there
        } else {
            let stored = within(deadline, files.summary(prefix)).await?;
            let text = stored.as_ref().map(|stored| stored.text.clone());
            let there = LastSummary { summary: stored.map(|stored| (stored.tag, text::previous(&stored.text))) };
            // The answer to a write was lost, and the write was made again.
            if tried.is_some() && text == tried {
                *seen = Some(there);
                return Ok(Outcome::Published { sequence: summary.sequence });
            }
            there
        };
        let previous = there.summary.as_ref().map(|(_, previous)| *previous);
        let now = summary.began.after(times.start.elapsed());
        match decide_replacement(previous, summary.began, now, cutoff) {
            Replacement::Superseded => {
                *seen = Some(there);
                return Ok(Outcome::Superseded);
            }
            Replacement::Next { sequence } => summary.sequence = sequence,
        }
        let text = text::summary(&summary);
        let tag = there.summary.as_ref().map(|(tag, _)| tag.as_str());
        if let Replaced::Written { tag } = Box::pin(within(deadline, files.replace(prefix, tag, &text))).await? {
            let written = Previous { timestamp: Field::Number(summary.timestamp()), sequence: Some(summary.sequence) };
            *seen = tag.map(|tag| LastSummary { summary: Some((tag, written)) });
            return Ok(Outcome::Published { sequence: summary.sequence });
        }
        tried = Some(text.into_bytes());
    }
    Ok(Outcome::Lost)
}
