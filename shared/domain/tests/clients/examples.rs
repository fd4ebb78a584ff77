//! Histories that reach the bounds which the random ones keep.

use tidegate_domain::{bucket::Shard, state::Terms};

use crate::{
    items::{Amounts, limit, terms},
    python::{PythonClient, Version},
    rust::{Fate, RustClient},
    table::{Fault, World},
};

const PER_MINUTE: Terms = terms(60_000, 60_000, 60_000);
/// 10,000 in a day: a whole number of millitokens accrues in 216 ms.
const PER_DAY: Terms = terms(10_000_000, 10_000_000, 86_400_000);

fn acquire(world: &mut World, client: &mut RustClient, amounts: &Amounts) {
    client.ask(Shard::ZERO, amounts);
    while !client.is_idle() {
        client.act(world, 1, Fate::Answered);
    }
}

/// The speculative write does not clamp what has accrued, so a bucket that was full for a while grants its stored tokens
/// and then a whole share. Clients of all versions do so.
#[test]
fn an_idle_bucket_grants_its_capacity_twice() {
    let mut world = World::new(&[PER_MINUTE], 1);
    let mut client = RustClient::new(0);
    world.now += 60_000;
    for _ in 0..3 {
        acquire(&mut world, &mut client, &[(limit("rpd"), 60_000)].into());
    }
    assert_eq!(client.leases.len(), 2);
    assert!(world.broken.is_empty(), "{:?}", world.broken);
}

/// A take on account leaves the time of the last refill where it is, and a Python client depends on nothing else. So it
/// takes the same tokens again, and the bucket is in debt until they have accrued.
#[test]
fn a_python_client_takes_again_what_was_taken_on_account() {
    let mut world = World::new(&[PER_DAY, PER_MINUTE], 1);
    let mut rust = RustClient::new(0);
    let mut python = PythonClient::new(Version::V17, 0);
    let day = limit("rpd");
    acquire(&mut world, &mut rust, &[(day, 1_000), (limit("rpm"), 60_000)].into());
    world.now += 200;
    let wanted = [(limit("rpm"), 200)].into();
    python.acquire(&mut world, 0, &wanted);
    python.act(&mut world);
    acquire(&mut world, &mut rust, &wanted);
    python.act(&mut world);
    assert_eq!((rust.leases.len(), python.leases.len()), (2, 1));
    assert_eq!(world.items[&Shard::ZERO].state.limits["rpm"].tokens.get(), -200);
    assert!(world.faults.contains(&Fault::TakesTwice));
    assert!(world.broken.is_empty(), "{:?}", world.broken);
}
