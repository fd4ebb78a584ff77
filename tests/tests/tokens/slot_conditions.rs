//! The store's conditions are those of the domain.

use proptest::prelude::*;
use tidegate_aws::{
    schema::tokens::{EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID},
    slots::{Coordinate, Slots},
};
use tidegate_domain::slot::{Slot, SlotChange, SlotOutcome, SlotWrite};
use tidegate_sandbox::item::Item;
use tidegate_tests::reservations::prelude::*;

const NOW: i64 = START / 1000;
const OF: Coordinate<'static> = Coordinate { resource: CLUSTER, account: ACCOUNT };

fn slots() -> impl Strategy<Value = Slot> {
    let expires = prop::option::of(NOW - 2..NOW + 4);
    let holder = prop::option::of(prop_oneof!["ours", "theirs"]);
    let resource = prop::option::of(prop_oneof!["j-1", "j-2"]);
    (holder, resource, expires, 0i64..4).prop_map(|(holder, resource, expires, fence)| Slot {
        holder,
        resource,
        expires,
        fence,
    })
}

fn changes() -> impl Strategy<Value = SlotChange<'static>> {
    prop_oneof![
        (1i64..4, NOW..NOW + 4).prop_map(|(fence, expires)| SlotChange::Take { fence, expires }),
        (NOW..NOW + 4).prop_map(|expires| SlotChange::Bind { resource: "j-1", expires }),
        (NOW..NOW + 4).prop_map(|expires| SlotChange::Renew { expires }),
        Just(SlotChange::Free { expires: NOW - 3_600 }),
    ]
}

/// The item of a slot; `None` for a slot that was never taken.
fn item(slot: &Slot) -> Option<Item> {
    let mut item = Item::from([
        (RESOURCE_COORDINATE.to_owned(), text(COORDINATE)),
        (RESERVATION_ID.to_owned(), text("#TIDEGATE#slot#0000003")),
    ]);
    item.extend(slot.holder.as_ref().map(|holder| ("#holder".to_owned(), text(holder))));
    item.extend(slot.resource.as_ref().map(|resource| (RESOURCE_ID.to_owned(), text(resource))));
    item.extend(slot.expires.map(|expires| (EXPIRATION_TIME.to_owned(), number(expires))));
    item.extend((slot.fence > 0).then(|| ("#fence".to_owned(), number(slot.fence))));
    (item.len() > 2).then_some(item)
}

#[test]
fn each_write_has_the_condition_of_the_domain() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scene = runtime.block_on(ReservationScene::new(5)).unwrap();
    let table = TokenTables::of(BASE).non_fungible;
    let store = Slots::new(scene.services.dynamodb.clone(), &table);
    let check = async |slot: &Slot, change: SlotChange<'_>| -> anyhow::Result<()> {
        for item in scene.items().await?.into_values() {
            let delete = scene.services.dynamodb.delete_item().table_name(&table);
            let key = |name: &str| item[name].clone();
            let delete = delete.key(RESOURCE_COORDINATE, key(RESOURCE_COORDINATE));
            delete.key(RESERVATION_ID, key(RESERVATION_ID)).send().await?;
        }
        if let Some(item) = item(slot) {
            scene.services.dynamodb.put_item().table_name(&table).set_item(Some(item)).send().await?;
        }
        let write = SlotWrite { holder: "ours", change };
        let outcome = store.write(OF, 3, &write, None, time(START)).await?;
        let expected = if slot.allows(&write, NOW) { slot.clone().after(&write) } else { slot.clone() };
        let found = scene.items().await?.into_values().next().unwrap_or_default();
        for (name, value) in item(&expected).unwrap_or_default() {
            assert_eq!(found.get(&name), Some(&value), "{name} of {found:?}");
        }
        for absent in ["#holder", RESOURCE_ID, EXPIRATION_TIME] {
            let is_expected = item(&expected).is_some_and(|item| item.contains_key(absent));
            assert_eq!(found.contains_key(absent), is_expected, "{absent} of {found:?}");
        }
        if slot.allows(&write, NOW) {
            assert_eq!(outcome, SlotOutcome::Done(expected.expires.unwrap_or_default()));
        } else {
            assert_eq!(outcome, slot.explain(&write, NOW));
        }
        Ok(())
    };
    proptest!(ProptestConfig::with_cases(300), |(slot in slots(), change in changes())| {
        runtime.block_on(check(&slot, change)).unwrap();
    });
}

/// A count shows the live tokens, page by page.
#[tokio::test]
async fn a_count_reads_all_pages() -> anyhow::Result<()> {
    let scene = ReservationScene::new(5).await?;
    let table = TokenTables::of(BASE).non_fungible;
    let store = Slots::new(scene.services.dynamodb.clone(), &table);
    // Each page has a megabyte.
    for number in 0..7 {
        let row = [
            (RESOURCE_COORDINATE, text(COORDINATE)),
            (RESERVATION_ID, text(format!("{number:08x}-0000-4000-8000-000000000000"))),
            (RESOURCE_ID, text("j-1")),
            (EXPIRATION_TIME, tidegate_sandbox::item::number(NOW + i64::from(number))),
            ("note", text("x".repeat(300_000))),
        ];
        scene.put(&table, row).await?;
    }
    let take = |expires| SlotChange::Take { fence: 1, expires };
    for (slot, expires) in [(0, NOW + 1), (2, NOW + 9), (11, NOW + 1), (12, NOW)] {
        store.write(OF, slot, &SlotWrite { holder: "ours", change: take(expires) }, None, time(START)).await?;
    }
    scene.http.calls();
    let all = store.occupancy(OF, 0, time(START)).await?;
    assert_eq!((all.others, all.held()), (6, Some(9)));
    assert_eq!(all.slots, [(0, NOW + 1), (2, NOW + 9), (11, NOW + 1)].into());
    let upper = store.occupancy(OF, 2, time(START)).await?;
    assert_eq!((upper.others, upper.slots), (6, [(2, NOW + 9), (11, NOW + 1)].into()));
    assert_eq!(store.list(OF, time(START)).await?.len(), 9);
    Ok(())
}
