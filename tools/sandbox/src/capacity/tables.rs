//! Tables and indexes with their capacity.

use std::{collections::BTreeMap, iter};

use tidegate_domain::throttle::CapacityKind;

/// Tables by name.
#[derive(Debug, Default)]
pub(super) struct Tables {
    tables: BTreeMap<String, Table>,
    /// How many descriptions of a table show a change before it is done.
    pub(super) polls: u32,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) is_on_demand: bool,
    pub(super) itself: Resource,
    pub(super) indexes: BTreeMap<String, Resource>,
}

/// The capacity of a table or of an index.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) provisioned: Throughput,
    pub(super) warm: Throughput,
    pub(super) decreases: u64,
    /// A change of the provisioned throughput.
    update: Option<Change>,
    warm_update: Option<Change>,
}

/// Units a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Throughput {
    pub(super) read: u64,
    pub(super) write: u64,
}

/// What is to change of one resource.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Update {
    pub(super) provisioned: Option<Throughput>,
    pub(super) warm: Option<Throughput>,
}

/// A change that is not done.
#[derive(Clone, Copy, Debug)]
struct Change {
    to: Throughput,
    /// How many more descriptions show that it is not done.
    polls: u32,
}

impl Tables {
    /// Creates a table, or replaces it.
    pub(super) fn create(&mut self, name: &str, is_on_demand: bool, capacity: Throughput) {
        let table = Table { is_on_demand, itself: Resource::new(is_on_demand, capacity), indexes: BTreeMap::new() };
        self.tables.insert(name.to_owned(), table);
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.tables.remove(name);
    }

    pub(super) fn table_mut(&mut self, name: &str) -> Option<&mut Table> {
        self.tables.get_mut(name)
    }

    /// The capacity of a resource like `table/orders` or `table/orders/index/by-date`.
    pub(super) fn find(&self, resource: &str) -> Option<&Resource> {
        let (name, index) = names(resource)?;
        let Table { itself, indexes, .. } = self.tables.get(name)?;
        index.map_or(Some(itself), |index| indexes.get(index))
    }

    pub(super) fn find_mut(&mut self, resource: &str) -> Option<&mut Resource> {
        let (name, index) = names(resource)?;
        self.tables.get_mut(name)?.resource_mut(index)
    }

    /// Moves the provisioned throughput of a resource into a range. The resource must be provisioned and `ACTIVE`, or
    /// else nothing changes.
    pub(super) fn move_into(&mut self, resource: &str, kind: CapacityKind, minimum: u64, maximum: u64) {
        let Some((name, index)) = names(resource) else { return };
        let table = self.tables.get_mut(name).filter(|table| !table.is_on_demand);
        let Some(found) = table.and_then(|table| table.resource_mut(index)) else { return };
        let current = found.provisioned.of(kind);
        let units = current.clamp(minimum, maximum);
        if units != current && !found.is_updating() {
            found.start(Update { provisioned: Some(found.provisioned.with(kind, units)), warm: None }, self.polls);
        }
    }

    /// Completes all changes.
    pub(super) fn settle(&mut self) {
        self.tables.values_mut().flat_map(Table::resources).for_each(Resource::settle);
    }
}

impl Table {
    /// The capacity of an index, or that of the table itself.
    pub(super) fn resource_mut(&mut self, index: Option<&str>) -> Option<&mut Resource> {
        match index {
            None => Some(&mut self.itself),
            Some(index) => self.indexes.get_mut(index),
        }
    }

    pub(super) fn create_index(&mut self, index: &str, capacity: Throughput) {
        self.indexes.insert(index.to_owned(), Resource::new(self.is_on_demand, capacity));
    }

    /// The table itself and its indexes.
    pub(super) fn resources(&mut self) -> impl Iterator<Item = &mut Resource> {
        iter::once(&mut self.itself).chain(self.indexes.values_mut())
    }
}

impl Resource {
    /// `capacity` is the warm throughput; if the table is not on-demand, it is also the provisioned throughput.
    fn new(is_on_demand: bool, capacity: Throughput) -> Self {
        let provisioned = if is_on_demand { Throughput::default() } else { capacity };
        Self { provisioned, warm: capacity, decreases: 0, update: None, warm_update: None }
    }

    pub(super) const fn is_updating(&self) -> bool {
        self.update.is_some()
    }

    pub(super) const fn is_warming(&self) -> bool {
        self.warm_update.is_some()
    }

    /// Starts changes that this many descriptions of the table do not show as done.
    pub(super) fn start(&mut self, update: Update, polls: u32) {
        let change = |to| Change { to, polls };
        self.update = update.provisioned.map(change).or(self.update);
        self.warm_update = update.warm.map(change).or(self.warm_update);
        self.finish();
    }

    /// Completes the changes that are due.
    pub(super) fn finish(&mut self) {
        if let Some(Change { to, .. }) = self.update.take_if(|change| change.polls == 0) {
            let is_decrease = to.read < self.provisioned.read || to.write < self.provisioned.write;
            self.decreases += u64::from(is_decrease);
            self.provisioned = to;
            self.warm = self.warm.at_least(to);
        }
        if let Some(Change { to, .. }) = self.warm_update.take_if(|change| change.polls == 0) {
            self.warm = self.warm.at_least(to);
        }
    }

    /// Counts a description that did not show the changes as done.
    pub(super) fn count_poll(&mut self) {
        for change in self.update.iter_mut().chain(&mut self.warm_update) {
            change.polls = change.polls.saturating_sub(1);
        }
    }

    fn settle(&mut self) {
        for change in self.update.iter_mut().chain(&mut self.warm_update) {
            change.polls = 0;
        }
        self.finish();
    }
}

impl Throughput {
    pub(super) const fn of(self, kind: CapacityKind) -> u64 {
        match kind {
            CapacityKind::Read => self.read,
            CapacityKind::Write => self.write,
        }
    }

    pub(super) const fn with(self, kind: CapacityKind, units: u64) -> Self {
        match kind {
            CapacityKind::Read => Self { read: units, ..self },
            CapacityKind::Write => Self { write: units, ..self },
        }
    }

    fn at_least(self, other: Self) -> Self {
        Self { read: self.read.max(other.read), write: self.write.max(other.write) }
    }
}

/// The names of the table and the index of a resource.
fn names(resource: &str) -> Option<(&str, Option<&str>)> {
    let name = resource.strip_prefix("table/")?;
    Some(name.split_once("/index/").map_or((name, None), |(name, index)| (name, Some(index))))
}
