//! A bucket item as a whole, from the stream or from a read: which of its attributes matter, and what
//! they say together.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_domain::{
    bucket::{InvalidName, Limit},
    state::{BucketImage, BucketState, LimitState, ShardCount, Terms, Unfamiliar},
    time::EpochMillis,
    tokens::Millitokens,
};

use crate::{
    error::StoreError,
    schema::{self, PK, SK, bucket},
};

/// The numbers of an item, in the order in which [`ImageBuilder`] keeps them.
const NUMBERS: [&str; 4] = [bucket::LAST_REFILL, bucket::SHARD_COUNT, schema::TTL, bucket::VALID_UNTIL];

/// The numbers of a limit, in the order in which [`ImageBuilder`] keeps them.
const LIMIT_NUMBERS: [&str; 5] =
    [bucket::TOKENS, bucket::CONSUMED, bucket::CAPACITY, bucket::REFILL_AMOUNT, bucket::REFILL_PERIOD];

/// What an item that was read says of its bucket.
#[expect(clippy::implicit_hasher, reason = "the SDK has one kind of map")]
pub fn image_of(item: &HashMap<String, AttributeValue>) -> Result<BucketImage<'static>, StoreError> {
    let corrupt = |attribute: &str| StoreError::Corrupt {
        item: describe(item),
        attribute: attribute.to_owned(),
        value: item.get(attribute).map(|value| format!("{value:?}")).unwrap_or_default(),
    };
    let mut image = ImageBuilder::default();
    for (name, value) in item {
        image.measure(name.len() + bytes_of(value));
        let integer = || value.as_n().ok().and_then(|digits| digits.parse().ok()).ok_or_else(|| corrupt(name));
        match Attribute::of(name) {
            Attribute::Number(number) => image.number(number, integer()?),
            Attribute::LimitNumber(limit, number) => image.limit_number(Cow::Borrowed(limit), number, integer()?),
            Attribute::Switch if value.as_bool() == Ok(&false) => {}
            Attribute::Switch => image.switch_off(),
            Attribute::Unsupported(rule) => image.mark_unsupported(rule),
            Attribute::Other => {}
        }
    }
    let image = image.build().map_err(|error| corrupt(&error.attribute))?;
    Ok(match image {
        BucketImage::Absent => BucketImage::Absent,
        BucketImage::Plain(state) => BucketImage::Plain(state.into_owned()),
        BucketImage::Unfamiliar(reason) => BucketImage::Unfamiliar(reason),
    })
}

/// An item's key, as logs name it.
pub(crate) fn describe(item: &HashMap<String, AttributeValue>) -> String {
    let part = |name| item.get(name).and_then(|value| value.as_s().ok()).map_or("?", String::as_str);
    format!("{} {}", part(PK), part(SK))
}

/// The size of a value in an item.
///
/// AWS: [item sizes](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html).
fn bytes_of(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => bytes_of_number(digits.trim_start_matches('-').len()),
        // Clients write nothing else that is large.
        _ => 1,
    }
}

/// The size of a number of so many digits.
pub(crate) const fn bytes_of_number(digits: usize) -> usize {
    digits.div_ceil(2) + 1
}

/// What an attribute is to a bucket's image.
pub(crate) enum Attribute<'n> {
    /// The item's number at this place.
    Number(usize),
    /// The limit's number at this place.
    LimitNumber(&'n str, usize),
    /// Switches something off, unless it is false.
    Switch,
    /// By being there, says that the bucket follows other rules.
    Unsupported(Unsupported),
    Other,
}

/// A rule that a plain token bucket does not know.
#[derive(Clone, Copy)]
pub(crate) enum Unsupported {
    Schedule,
    Quota,
}

impl<'n> Attribute<'n> {
    pub(crate) fn of(name: &'n str) -> Self {
        let Some((limit, field)) = bucket::limit_and_field(name) else { return Self::of_item(name) };
        if let Some(place) = LIMIT_NUMBERS.iter().position(|number| *number == field) {
            return Self::LimitNumber(limit, place);
        }
        match field {
            bucket::SCHEDULE | bucket::RESET_SCHEDULE => Self::Unsupported(Unsupported::Schedule),
            bucket::SESSION_START
            | bucket::SESSION_LENGTH
            | bucket::SESSION_APPLIED
            | bucket::SESSION_CONSUMED
            | bucket::GRANT_COUNT
            | bucket::TOPPED_UP
            | bucket::RESET_COUNT => Self::Unsupported(Unsupported::Quota),
            _ => Self::Other,
        }
    }

    fn of_item(name: &str) -> Self {
        match name {
            bucket::DEFAULT_SCHEDULE | bucket::DEFAULT_RESET_SCHEDULE => Self::Unsupported(Unsupported::Schedule),
            bucket::DISABLED | bucket::BYPASS => Self::Switch,
            _ => NUMBERS.iter().position(|number| *number == name).map_or(Self::Other, Self::Number),
        }
    }
}

/// The attributes of a bucket item that matter, as they are read.
#[derive(Debug, Default)]
pub struct ImageBuilder<'a> {
    bytes: usize,
    numbers: [Option<i64>; NUMBERS.len()],
    limits: Vec<(Cow<'a, str>, LimitNumbers)>,
    has_schedule: bool,
    is_quota: bool,
    is_switched_off: bool,
}

type LimitNumbers = [Option<i64>; LIMIT_NUMBERS.len()];

/// A limit whose name cannot be one, and an attribute of it.
pub(crate) struct InvalidLimit {
    pub(crate) attribute: String,
    pub(crate) limit: String,
    pub(crate) source: InvalidName,
}

impl<'a> ImageBuilder<'a> {
    /// Counts an attribute into the size of the item.
    pub(crate) fn measure(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub(crate) fn number(&mut self, place: usize, value: i64) {
        self.numbers[place] = Some(value);
    }

    pub(crate) fn limit_number(&mut self, limit: Cow<'a, str>, place: usize, value: i64) {
        let known = self.limits.iter().position(|(name, _)| *name == limit);
        let at = known.unwrap_or(self.limits.len());
        if known.is_none() {
            self.limits.push((limit, LimitNumbers::default()));
        }
        self.limits[at].1[place] = Some(value);
    }

    pub(crate) fn mark_unsupported(&mut self, rule: Unsupported) {
        match rule {
            Unsupported::Schedule => self.has_schedule = true,
            Unsupported::Quota => self.is_quota = true,
        }
    }

    pub(crate) fn switch_off(&mut self) {
        self.is_switched_off = true;
    }

    pub(crate) fn build(self) -> Result<BucketImage<'a>, InvalidLimit> {
        let unfamiliar = self.unfamiliar();
        let limits = self.limits.into_iter().map(named).collect::<Result<Vec<_>, _>>()?;
        let state = match unfamiliar {
            Some(reason) => Err(reason),
            None => state(self.numbers, limits, u32::try_from(self.bytes).unwrap_or(u32::MAX)),
        };
        Ok(state.map_or_else(BucketImage::Unfamiliar, BucketImage::Plain))
    }

    fn unfamiliar(&self) -> Option<Unfamiliar> {
        if self.has_schedule {
            Some(Unfamiliar::Schedule)
        } else if self.is_quota {
            Some(Unfamiliar::Quota)
        } else if self.is_switched_off {
            Some(Unfamiliar::SwitchedOff)
        } else {
            None
        }
    }
}

fn named((name, numbers): (Cow<'_, str>, LimitNumbers)) -> Result<(Limit<'_>, LimitNumbers), InvalidLimit> {
    match Limit::new(name.clone()) {
        Ok(limit) => Ok((limit, numbers)),
        Err(source) => {
            let first = numbers.iter().position(Option::is_some).unwrap_or_default();
            let attribute = bucket::attribute(&name, LIMIT_NUMBERS[first]);
            Err(InvalidLimit { attribute, limit: name.into_owned(), source })
        }
    }
}

fn state(
    [last_refill, shards, expires, valid_until]: [Option<i64>; NUMBERS.len()],
    limits: Vec<(Limit<'_>, LimitNumbers)>,
    bytes: u32,
) -> Result<BucketState<'_>, Unfamiliar> {
    let (Some(last_refill), Some(shards)) = (last_refill, shards) else { return Err(Unfamiliar::Incomplete) };
    if valid_until.is_some() {
        return Err(Unfamiliar::AwaitsClient);
    }
    // `set_limits` writes the terms of a new limit only. The first client that needs the limit gives it tokens.
    let is_seeded = |(_, [tokens, consumed, ..]): &(Limit<'_>, LimitNumbers)| tokens.is_some() || consumed.is_some();
    let limits = limits.into_iter().filter(is_seeded).map(|(limit, numbers)| Some((limit, limit_state(numbers)?)));
    let limits: BTreeMap<_, _> = limits.collect::<Option<_>>().ok_or(Unfamiliar::Incomplete)?;
    if !limits.keys().any(Limit::is_write_units) {
        return Err(Unfamiliar::Incomplete);
    }
    if limits.values().any(|LimitState { terms, .. }| terms.refill.get() == 0 || terms.period <= 0) {
        return Err(Unfamiliar::NoRefill);
    }
    if limits.values().any(|LimitState { terms, .. }| terms.capacity.get() < 0 || terms.refill.get() < 0) {
        return Err(Unfamiliar::OutOfRange);
    }
    let shards = u32::try_from(shards).ok().and_then(ShardCount::new).ok_or(Unfamiliar::OutOfRange)?;
    let last_refill = EpochMillis::new(last_refill).map_err(|_| Unfamiliar::OutOfRange)?;
    Ok(BucketState { last_refill, shards, expires, bytes, limits })
}

/// The limit's state, if none of its numbers is missing.
fn limit_state(numbers: LimitNumbers) -> Option<LimitState> {
    let [Some(tokens), Some(consumed), Some(capacity), Some(refill), Some(period)] = numbers else { return None };
    Some(LimitState {
        tokens: Millitokens::new(tokens),
        consumed: Millitokens::new(consumed),
        terms: Terms { capacity: Millitokens::new(capacity), refill: Millitokens::new(refill), period },
    })
}
