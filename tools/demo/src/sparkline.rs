//! A series of numbers as a line of blocks.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const EIGHT: i64 = 8;

/// The most blocks in a line.
const WIDTH: usize = 60;

/// Draws a series from 0 to `top`. A long one is thinned out, and of each part the lowest number is drawn:
/// to run dry for a second is what matters.
pub(crate) fn sparkline(series: &[i64], top: i64) -> String {
    let part = series.len().div_ceil(WIDTH).max(1);
    let lowest = series.chunks(part).filter_map(|part| part.iter().min());
    lowest.map(|value| if *value <= 0 { ' ' } else { block(*value, top) }).collect()
}

fn block(value: i64, top: i64) -> char {
    let highest = BLOCKS.len() - 1;
    let top = top.max(1);
    let place = value.min(top) * EIGHT / top;
    BLOCKS[usize::try_from(place).unwrap_or(0).min(highest)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_blank_and_the_top_is_full() {
        assert_eq!(sparkline(&[0, 1, 50, 100, 200, -3], 100), " ▁▅██ ");
        assert_eq!(sparkline(&[], 100), "");
        assert_eq!(sparkline(&[5], 0), "█");
    }

    #[test]
    fn a_long_series_is_thinned_to_its_lowest_numbers() {
        let series: Vec<i64> = (0..180).map(|at| if at == 90 { 0 } else { 100 }).collect();
        let line = sparkline(&series, 100);
        assert_eq!(line.chars().count(), 60);
        assert_eq!(line.chars().position(|block| block == ' '), Some(30));
    }
}
