//! The drawing.

use crate::spikes::{
    chart::draw,
    designs,
    simulation::{DesignRun, Minute},
    traffic::{DAY, MINUTE, SPIKE},
};

#[test]
fn a_minute_is_a_column() {
    let mut minutes = vec![Minute::default(); (DAY / MINUTE) as usize];
    let noon = (SPIKE / MINUTE) as usize;
    let minute = |consumed: u64, provided: u64, throttled: u64| Minute {
        consumed: consumed * 60,
        provided: provided * 60,
        throttled: throttled * 60,
    };
    minutes[noon - 5] = minute(0, 26_000, 0);
    minutes[noon - 4] = minute(2_500, 7_500, 0);
    minutes[noon - 3] = minute(5_000, 9_999, 0);
    minutes[noon] = minute(15_000, 5_000, 0);
    minutes[noon + 1] = minute(9_000, 9_000, 10_000);
    let run =
        DesignRun { design: designs::ALL[0], seed: 1, minutes, throttled: None, highest: None, cost: 0, delay: None };
    let expect = "\
auto scaling, 70 %: the job starts at once
     30000 ┤_      │
     25000 ┤       │
     20000 ┤       │
     15000 ┤     ░ │
     10000 ┤ ─‾  ░▇│
      5000 ┤ ▅█__██│
         0 └─────┴─┘
 throttles │      █│";
    let drawing = draw(&run, 7);
    assert_eq!(drawing, expect, "\n{drawing}");
}
