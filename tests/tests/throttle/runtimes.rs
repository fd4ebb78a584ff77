//! Clones of a throttle in several runtimes, and runtimes that stand still.

use std::{pin::pin, thread};

use tidegate_tests::{client::START, throttle::prelude::*};
use tokio::runtime;

const THREADS: usize = 4;
const CALLS: usize = 100;

#[test]
fn clones_share_a_limit_across_runtimes() -> anyhow::Result<()> {
    let clock = ManualClock::new(START);
    let throttle = Throttle::fixed(1.0, 1_000.0)?.clock(clock.clone());
    let cost = Cost::write(1.0)?;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let throttle = throttle.clone();
            thread::spawn(move || -> anyhow::Result<()> {
                runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
                    for _ in 0..CALLS {
                        throttle.admit(cost).await.settle(1.0)?;
                    }
                    Ok(())
                })
            })
        })
        .collect();
    while threads.iter().any(|thread| !thread.is_finished()) {
        // All threads that are left wait.
        if throttle.usage().writes.waiting == threads.iter().filter(|thread| !thread.is_finished()).count() {
            clock.advance(Duration::from_millis(1));
        }
        thread::yield_now();
    }
    for thread in threads {
        thread.join().expect("no panic")?;
    }
    assert_eq!(throttle.usage().writes.consumed, 400.0);
    // The bucket holds a hundred at the start.
    let elapsed = clock.epoch_millis() - START;
    assert!(elapsed >= 300, "{elapsed}");
    Ok(())
}

/// A caller that is not polled is due after a tenth of a second. The next one asks again after a second. Then both pass: the first
/// one late, as of a tenth of a second ago.
#[tokio::test]
async fn a_caller_that_stands_still_does_not_stop_others() -> anyhow::Result<()> {
    let clock = ManualClock::new(START);
    let throttle = Throttle::fixed(10.0, 10.0)?.clock(clock.clone());
    let cost = Cost::read(1.0)?;
    throttle.admit(cost).await.settle(1.0)?;
    let mut still = pin!(throttle.admit(cost));
    assert!(futures::poll!(&mut still).is_pending());
    let next = tokio::spawn({
        let throttle = throttle.clone();
        async move { throttle.admit(cost).await.settle(1.0) }
    });
    until(|| throttle.usage().reads.waiting == 2).await?;
    clock.advance(Duration::from_secs(1));
    next.await??;
    assert_eq!(throttle.usage().reads.consumed, 2.0);
    still.await.settle(1.0)?;
    assert_eq!(throttle.usage().reads.consumed, 3.0);
    Ok(())
}
