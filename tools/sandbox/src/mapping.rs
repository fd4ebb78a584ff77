//! The event source mapping between a stream shard and a function, by AWS's rules.
//!
//! It bisects failed batches and retries without a limit, as the template sets it up. `MaximumRecordAgeInSeconds` has no
//! counterpart, because the records here have simulated times.
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

/// What an answer means for the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchDisposition {
    Done,
    /// This many records at the front are done. The rest is delivered again.
    Partly(usize),
    /// All of the batch is delivered again, in halves if it has several records.
    Again,
}

/// The mapping of one stream shard.
#[derive(Debug)]
pub struct Mapping {
    /// `BatchSize`: the most records in a batch.
    batch_size: NonZeroUsize,
    /// Records that were in no batch yet.
    waiting: VecDeque<StreamRecord>,
    /// Batches that were cut, in stream order; the first is the one being processed.
    batches: VecDeque<Vec<StreamRecord>>,
    /// The size of the next batch, if it differs from `batch_size`.
    next_size: Option<NonZeroUsize>,
}

impl Mapping {
    /// A mapping at the shard's trim horizon.
    pub fn new(batch_size: NonZeroUsize) -> Self {
        Self { batch_size, waiting: VecDeque::new(), batches: VecDeque::new(), next_size: None }
    }

    /// Takes records that the shard has produced, in stream order.
    pub fn offer(&mut self, records: impl IntoIterator<Item = StreamRecord>) {
        self.waiting.extend(records);
    }

    /// Returns the batch to deliver. It stays the same until it is answered. `None` if there are no records.
    pub fn batch(&mut self) -> Option<&[StreamRecord]> {
        if self.batches.is_empty() {
            let size = self.next_size.take().unwrap_or(self.batch_size).get();
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
            self.batches.push_back(records);
        }
        self.batches.front().map(Vec::as_slice)
    }

    /// Records that no batch has delivered successfully yet.
    pub fn behind(&self) -> usize {
        self.waiting.len() + self.batches.iter().map(Vec::len).sum::<usize>()
    }

    /// Takes the answer to the present batch.
    pub fn answer(&mut self, answer: &Answer) -> BatchDisposition {
        let Some(mut batch) = self.batches.pop_front() else { return BatchDisposition::Done };
        match checkpoint(&batch, answer) {
            Checkpoint::End => BatchDisposition::Done,
            Checkpoint::At(done) => {
                batch.drain(..done);
                self.batches.push_front(batch);
                if done > 0 { BatchDisposition::Partly(done) } else { BatchDisposition::Again }
            }
            Checkpoint::Unknown => {
                if batch.len() > 1 {
                    let second = batch.split_off(batch.len() / 2);
                    self.batches.push_front(second);
                }
                self.batches.push_front(batch);
                BatchDisposition::Again
            }
        }
    }

    /// Puts everything that is not done back in line, and cuts the next batch to `size` for once.
    pub fn recut(&mut self, size: NonZeroUsize) {
        for batch in self.batches.drain(..).rev() {
            for record in batch.into_iter().rev() {
                self.waiting.push_front(record);
            }
        }
        self.next_size = Some(size);
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

    fn mapping(batch_size: usize, records: usize) -> Mapping {
        let mut mapping = Mapping::new(NonZeroUsize::new(batch_size).unwrap());
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
        let mut mapping = mapping(2, 3);
        assert_eq!(batch(&mut mapping), ["0", "1"]);
        assert_eq!(mapping.answer(&failures(&[])), BatchDisposition::Done);
        assert_eq!(batch(&mut mapping), ["2"]);
        assert_eq!(mapping.answer(&failures(&[])), BatchDisposition::Done);
        assert_eq!(mapping.behind(), 0);
        assert_eq!(mapping.batch(), None);
    }

    #[test]
    fn everything_from_the_lowest_failure_comes_again() {
        let mut mapping = mapping(4, 4);
        batch(&mut mapping);
        assert_eq!(mapping.answer(&failures(&["3", "1"])), BatchDisposition::Partly(1));
        assert_eq!(batch(&mut mapping), ["1", "2", "3"]);
    }

    #[test]
    fn an_unknown_identifier_fails_the_whole_batch() {
        for answer in [Answer::Failures(vec![None]), failures(&[""]), failures(&["1", "9"]), Answer::Error] {
            let mut mapping = mapping(4, 4);
            batch(&mut mapping);
            assert_eq!(mapping.answer(&answer), BatchDisposition::Again);
            assert_eq!([batch(&mut mapping).len(), mapping.behind()], [2, 4]);
        }
    }

    #[test]
    fn a_failed_batch_is_halved_and_retried() {
        let mut mapping = mapping(4, 4);
        batch(&mut mapping);
        assert_eq!(mapping.answer(&Answer::Error), BatchDisposition::Again);
        assert_eq!(batch(&mut mapping), ["0", "1"]);
        assert_eq!(mapping.answer(&failures(&["1"])), BatchDisposition::Partly(1));
        for _ in 0..3 {
            assert_eq!(batch(&mut mapping), ["1"]);
            assert_eq!(mapping.answer(&Answer::Error), BatchDisposition::Again);
            assert_eq!(mapping.answer(&failures(&["1"])), BatchDisposition::Again);
        }
        assert_eq!(mapping.answer(&failures(&[])), BatchDisposition::Done);
        assert_eq!(batch(&mut mapping), ["2", "3"]);
    }

    #[test]
    fn a_redelivery_may_be_cut_differently() {
        let mut mapping = mapping(4, 6);
        batch(&mut mapping);
        mapping.answer(&Answer::Error);
        mapping.recut(NonZeroUsize::new(3).unwrap());
        assert_eq!(batch(&mut mapping), ["0", "1", "2"]);
        mapping.answer(&failures(&[]));
        assert_eq!(batch(&mut mapping), ["3", "4", "5"], "only the one batch is cut differently");
    }

    #[test]
    fn a_batch_holds_at_most_six_megabytes() {
        let mut mapping = mapping(10_000, 0);
        let json: Arc<str> = "x".repeat(MAX_BATCH_BYTES / 2).into();
        mapping.offer((0..3).map(|n| StreamRecord { sequence: n.to_string(), json: Arc::clone(&json) }));
        assert_eq!(batch(&mut mapping), ["0", "1"]);
    }
}
