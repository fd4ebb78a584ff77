//! Where buckets and configurations are: in a table, or in this process for tests.

use std::{collections::BTreeMap, ops::Range};

use aws_sdk_dynamodb::Client;
use tidegate_aws::{
    acquires::{Acquires, Adjustment, Operation, SeenShard, SpeculativeWrite, WriteError, Written},
    bucket_item::BucketItem,
    buckets::{Buckets, Consistency, Shards, WriteOutcome},
    configurations::{Configurations, Configured},
    error::StoreError,
};
use tidegate_domain::{
    bucket::{BucketKey, Namespace, Shard},
    repair::Alignment,
    split::Plan,
    state::BucketState,
    tokens::Millitokens,
};

use crate::core::Name;
#[cfg(feature = "test-util")]
use crate::memory::Memory;

/// Buckets and configurations.
#[derive(Clone)]
pub(crate) enum Store {
    Table {
        acquires: Acquires,
        buckets: Buckets,
        configurations: Configurations,
    },
    #[cfg(feature = "test-util")]
    Memory(Memory),
}

/// Calls the table, or the memory without an error.
macro_rules! call {
    ($store:expr, $part:ident.$method:ident($($argument:expr),*)) => {
        match $store {
            Self::Table { $part, .. } => $part.$method($($argument),*).await,
            #[cfg(feature = "test-util")]
            Self::Memory(memory) => Ok(memory.$method($($argument),*)),
        }
    };
}

impl Store {
    pub(crate) fn table(client: &Client, table: &str) -> Self {
        Self::Table {
            acquires: Acquires::new(client.clone(), table),
            buckets: Buckets::new(client.clone(), table),
            configurations: Configurations::new(client.clone(), table),
        }
    }

    pub(crate) async fn speculate(
        &self,
        key: &BucketKey<'_>,
        write: &SpeculativeWrite,
        amounts: &[Millitokens],
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        call!(self, acquires.speculate(key, write, amounts, operation))
    }

    pub(crate) async fn take(&self, seen: &SeenShard<'_, '_>, operation: Operation<'_>) -> Result<Written, WriteError> {
        call!(self, acquires.take(seen, operation))
    }

    pub(crate) async fn take_together(
        &self,
        shards: &[SeenShard<'_, '_>],
        operation: Operation<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        call!(self, acquires.take_together(shards, operation))
    }

    pub(crate) async fn create(
        &self,
        key: &BucketKey<'_>,
        state: &BucketState<'static>,
        configured: &Configured,
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        call!(self, acquires.create(key, state, configured, operation))
    }

    pub(crate) async fn complete(
        &self,
        key: &BucketKey<'_>,
        state: &BucketState<'static>,
        configured: &Configured,
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        call!(self, acquires.complete(key, state, configured, operation))
    }

    pub(crate) async fn adjust(
        &self,
        key: &BucketKey<'_>,
        adjustments: &[Adjustment<'_>],
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        call!(self, acquires.adjust(key, adjustments, operation))
    }

    pub(crate) async fn find(&self, key: &BucketKey<'_>) -> Result<Option<BucketItem>, StoreError> {
        call!(self, acquires.find(key))
    }

    pub(crate) async fn find_all(
        &self,
        key: &BucketKey<'_>,
        shards: Range<u32>,
    ) -> Result<BTreeMap<Shard, BucketItem>, StoreError> {
        call!(self, acquires.find_all(key, shards))
    }

    pub(crate) async fn read(&self, key: &BucketKey<'_>, shards: Range<u32>) -> Result<Shards, StoreError> {
        call!(self, buckets.read(key, shards, Consistency::Strong))
    }

    pub(crate) async fn align(
        &self,
        key: &BucketKey<'_>,
        seen: &BucketState<'_>,
        alignment: &Alignment<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        call!(self, buckets.align(key, seen, alignment))
    }

    pub(crate) async fn increase_shards(
        &self,
        key: &BucketKey<'_>,
        shards: &Shards,
        plan: &Plan<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        call!(self, buckets.increase_shards(key, shards, plan))
    }

    pub(crate) async fn configured(
        &self,
        namespace: &Namespace<'_>,
        Name { entity, resource }: &Name,
        consistency: Consistency,
    ) -> Result<Configured, StoreError> {
        call!(self, configurations.resolve(namespace, entity, resource, consistency))
    }
}
