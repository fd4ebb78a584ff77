//! Users and the job, without a table.

use crate::spikes::traffic::{DAY, HOUR, JOB_RATE, JOB_SECONDS, Job, SPIKE, Step, USERS_AT_SPIKE, users};

#[test]
fn users_peak_before_the_spike() {
    for seed in 0..10 {
        let users = users(seed);
        assert_eq!(users.len(), DAY as usize);
        let mean = |from: u32, to: u32| {
            let part = &users[from as usize..to as usize];
            part.iter().sum::<u64>() / u64::from(to - from)
        };
        let near = |mean: u64, expect: u64| assert!(mean.abs_diff(expect) <= expect / 100, "{mean}, not {expect}");
        near(mean(0, 5 * HOUR), 1_500);
        near(mean(9 * HOUR + HOUR / 2, 10 * HOUR + HOUR / 2), 5_600);
        near(mean(SPIKE, 14 * HOUR), USERS_AT_SPIKE);
        // The jitter is a tenth in each second, and a hundredth in each minute.
        assert!(users[SPIKE as usize..14 * HOUR as usize].iter().all(|rate| (3_560..=4_444).contains(rate)));
        assert!(users[SPIKE as usize..14 * HOUR as usize].iter().any(|rate| rate.abs_diff(4_000) > 380));
    }
}

#[test]
fn a_seed_repeats_the_users() {
    assert_eq!(users(1), users(1));
    assert_ne!(users(1), users(2));
}

#[test]
fn a_job_follows_its_pace_and_does_its_work() {
    const PACE: &[Step] = &[(0, 100), (10, JOB_RATE)];
    let mut job = Job::new(PACE);
    assert_eq!(job.demand(SPIKE), 0, "it has not started");
    job.start(SPIKE);
    job.start(SPIKE + 5);
    for (after, expect) in [(0, 100), (9, 100), (10, JOB_RATE), (1_000_000, JOB_RATE)] {
        assert_eq!(job.demand(SPIKE + after), expect, "{after}");
    }
    let work = JOB_RATE * u64::from(JOB_SECONDS);
    job.count(work - 7, SPIKE + 20);
    assert_eq!((job.demand(SPIKE + 20), job.ended(), job.delay()), (7, None, None));
    job.count(7, SPIKE + JOB_SECONDS + 41);
    assert_eq!((job.demand(SPIKE + JOB_SECONDS + 42), job.delay()), (0, Some(42)));
}
