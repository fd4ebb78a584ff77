//! The event source mapping between a stream shard and a function, by AWS's rules.
//!
//! `MaximumRecordAgeInSeconds` has no counterpart: the records here are of a simulated time.
//!
//! It does no I/O. It selects the next batch and interprets the response. [`pump`](crate::pump) delivers batches and injects
//! faults.
//!
//! AWS: [parameters](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html),
//! [errors](https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html),
//! [partial batch responses](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html).

use std::{collections::VecDeque, num::NonZeroUsize, sync::Arc};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRecord {
    pub sequence: String,
    /// Its JSON text as Lambda delivers it.
    pub json: Arc<str>,
}

/// How the mapping is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `BatchSize`: the most records in a batch.
    pub batch_size: NonZeroUsize,
    /// `BisectBatchOnFunctionError`.
    pub bisect: bool,
    /// `MaximumRetryAttempts`; AWS's default is to retry until the records expire.
    pub max_retries: Option<u32>,
}

/// The most records in a batch.
///
/// AWS: [parameters](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html).
pub const MAX_BATCH_SIZE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

/// The most bytes of records in a batch.
///
/// AWS: [invocation payload](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
pub const MAX_BATCH_BYTES: usize = 6_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A response with these batch item failures; none is success.
    Failures(Vec<Option<String>>),
    /// An error, a timeout, a crash, or a response that cannot be read.
    Error,
}

/// What an answer meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    /// This many records at the front are done, the rest comes again.
    Partly(usize),
    /// All of the batch comes again, perhaps in halves.
    Again,
    /// The retries are used up: the batch goes to the failure destination, and the shard moves on.
    GivenUp,
}

/// The mapping of one stream shard.
#[derive(Debug)]
pub struct Mapping {
    settings: Settings,
    /// Records that were in no batch yet.
    waiting: VecDeque<StreamRecord>,
    /// Batches that were cut, in stream order; the first is the one being processed.
    batches: VecDeque<Batch>,
    given_up: Vec<StreamRecord>,
    /// The size of the next batch to be cut, if it is to be another than usual.
    next_size: Option<NonZeroUsize>,
}

#[derive(Debug)]
struct Batch {
    records: Vec<StreamRecord>,
    failures: u32,
}

impl Mapping {
    /// A mapping at the shard's trim horizon.
    pub fn new(settings: Settings) -> Self {
        Self { settings, waiting: VecDeque::new(), batches: VecDeque::new(), given_up: Vec::new(), next_size: None }
    }

    /// Takes records that the shard has produced, in stream order.
    pub fn offer(&mut self, records: impl IntoIterator<Item = StreamRecord>) {
        self.waiting.extend(records);
    }

    /// The batch to deliver now: the same until it is answered. `None` when nothing waits.
    pub fn batch(&mut self) -> Option<&[StreamRecord]> {
        if self.batches.is_empty() {
            let size = self.next_size.take().unwrap_or(self.settings.batch_size).get();
            let mut records = Vec::new();
            let mut bytes = 0;
            while let Some(record) = self.waiting.front()
                && records.len() < size
                && (records.is_empty() || bytes + record.json.len() <= MAX_BATCH_BYTES)
            {
                bytes += record.json.len();
                records.extend(self.waiting.pop_front());
            }
            if records.is_empty() {
                return None;
            }
            self.batches.push_back(Batch { records, failures: 0 });
        }
        self.batches.front().map(|batch| batch.records.as_slice())
    }

    /// Records that no batch has delivered successfully yet.
    pub fn behind(&self) -> usize {
        self.waiting.len() + self.batches.iter().map(|batch| batch.records.len()).sum::<usize>()
    }

    /// The records that were given up: what the failure destination was told of.
    pub fn given_up(&self) -> &[StreamRecord] {
        &self.given_up
    }

    /// Takes the answer to the present batch.
    pub fn answer(&mut self, answer: &Answer) -> Verdict {
        let Some(mut batch) = self.batches.pop_front() else { return Verdict::Done };
        match checkpoint(&batch.records, answer) {
            Checkpoint::End => return Verdict::Done,
            Checkpoint::At(done) if done > 0 && self.settings.bisect => {
                // Bisected where the function says so; that uses up no retry.
                batch.records.drain(..done);
                self.batches.push_front(batch);
                return Verdict::Partly(done);
            }
            Checkpoint::At(done) => {
                batch.failures += 1;
                if !self.spent(&batch) {
                    batch.records.drain(..done);
                    self.batches.push_front(batch);
                    return if done > 0 { Verdict::Partly(done) } else { Verdict::Again };
                }
                batch.records.drain(..done);
            }
            Checkpoint::Unknown if self.settings.bisect && batch.records.len() > 1 => {
                let second = batch.records.split_off(batch.records.len() / 2);
                let failures = batch.failures;
                self.batches.push_front(Batch { records: second, failures });
                self.batches.push_front(batch);
                return Verdict::Again;
            }
            Checkpoint::Unknown => {
                batch.failures += 1;
                if !self.spent(&batch) {
                    self.batches.push_front(batch);
                    return Verdict::Again;
                }
            }
        }
        self.given_up.extend(batch.records);
        Verdict::GivenUp
    }

    /// Puts everything that is not done back in line, and cuts the next batch to `size` for once.
    pub fn recut(&mut self, size: NonZeroUsize) {
        for batch in self.batches.drain(..).rev() {
            for record in batch.records.into_iter().rev() {
                self.waiting.push_front(record);
            }
        }
        self.next_size = Some(size);
    }

    fn spent(&self, batch: &Batch) -> bool {
        self.settings.max_retries.is_some_and(|retries| batch.failures > retries)
    }
}

enum Checkpoint {
    /// Behind the whole batch.
    End,
    /// Before the record at this place: the lowest that failed.
    At(usize),
    /// Nowhere: the whole batch failed.
    Unknown,
}

fn checkpoint(records: &[StreamRecord], answer: &Answer) -> Checkpoint {
    let Answer::Failures(failures) = answer else { return Checkpoint::Unknown };
    let place = |failure: &Option<String>| {
        let failure = failure.as_deref()?;
        records.iter().position(|record| record.sequence == failure)
    };
    // One null, empty or unknown identifier fails the whole batch.
    match failures.iter().map(place).collect::<Option<Vec<_>>>() {
        Some(places) => places.into_iter().min().map_or(Checkpoint::End, Checkpoint::At),
        None => Checkpoint::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(batch_size: usize, bisect: bool, max_retries: Option<u32>, records: usize) -> Mapping {
        let batch_size = NonZeroUsize::new(batch_size).unwrap();
        let mut mapping = Mapping::new(Settings { batch_size, bisect, max_retries });
        mapping.offer((0..records).map(|n| StreamRecord { sequence: n.to_string(), json: "{}".into() }));
        mapping
    }

    fn batch(mapping: &mut Mapping) -> Vec<String> {
        mapping.batch().unwrap_or_default().iter().map(|record| record.sequence.clone()).collect()
    }

    fn failures(sequences: &[&str]) -> Answer {
        Answer::Failures(sequences.iter().map(|sequence| Some((*sequence).to_owned())).collect())
    }

    #[test]
    fn an_empty_list_is_success() {
        let mut mapping = mapping(2, true, None, 3);
        assert_eq!(batch(&mut mapping), ["0", "1"]);
        assert_eq!(mapping.answer(&failures(&[])), Verdict::Done);
        assert_eq!(batch(&mut mapping), ["2"]);
        assert_eq!(mapping.answer(&failures(&[])), Verdict::Done);
        assert_eq!(mapping.behind(), 0);
        assert_eq!(mapping.batch(), None);
    }

    #[test]
    fn everything_from_the_lowest_failure_comes_again() {
        let mut mapping = mapping(4, false, None, 4);
        batch(&mut mapping);
        assert_eq!(mapping.answer(&failures(&["3", "1"])), Verdict::Partly(1));
        assert_eq!(batch(&mut mapping), ["1", "2", "3"]);
    }

    #[test]
    fn a_null_empty_or_unknown_identifier_fails_the_whole_batch() {
        for answer in [Answer::Failures(vec![None]), failures(&[""]), failures(&["1", "9"]), Answer::Error] {
            let mut mapping = mapping(4, false, None, 4);
            batch(&mut mapping);
            assert_eq!(mapping.answer(&answer), Verdict::Again);
            assert_eq!(batch(&mut mapping), ["0", "1", "2", "3"]);
        }
    }

    #[test]
    fn bisecting_halves_a_failed_batch_and_uses_up_no_retry() {
        let mut mapping = mapping(4, true, Some(0), 4);
        batch(&mut mapping);
        assert_eq!(mapping.answer(&Answer::Error), Verdict::Again);
        assert_eq!(batch(&mut mapping), ["0", "1"]);
        assert_eq!(mapping.answer(&failures(&["1"])), Verdict::Partly(1));
        assert_eq!(batch(&mut mapping), ["1"]);
        assert_eq!(mapping.answer(&Answer::Error), Verdict::GivenUp);
        assert_eq!(batch(&mut mapping), ["2", "3"]);
        assert_eq!(mapping.given_up()[0].sequence, "1");
    }

    #[test]
    fn past_its_retries_a_batch_is_given_up_and_the_shard_moves_on() {
        let mut mapping = mapping(2, false, Some(2), 3);
        batch(&mut mapping);
        assert_eq!(mapping.answer(&Answer::Error), Verdict::Again);
        assert_eq!(mapping.answer(&failures(&["0"])), Verdict::Again);
        assert_eq!(mapping.answer(&Answer::Error), Verdict::GivenUp);
        assert_eq!(batch(&mut mapping), ["2"]);
    }

    #[test]
    fn a_redelivery_may_be_cut_differently() {
        let mut mapping = mapping(4, true, None, 6);
        batch(&mut mapping);
        mapping.answer(&Answer::Error);
        mapping.recut(NonZeroUsize::new(3).unwrap());
        assert_eq!(batch(&mut mapping), ["0", "1", "2"]);
        mapping.answer(&failures(&[]));
        assert_eq!(batch(&mut mapping), ["3", "4", "5"], "only the one batch is cut differently");
    }

    #[test]
    fn a_batch_holds_at_most_six_megabytes() {
        let mut mapping = mapping(10_000, true, None, 0);
        let json: Arc<str> = "x".repeat(MAX_BATCH_BYTES / 2).into();
        mapping.offer((0..3).map(|n| StreamRecord { sequence: n.to_string(), json: Arc::clone(&json) }));
        assert_eq!(batch(&mut mapping), ["0", "1"]);
    }
}
