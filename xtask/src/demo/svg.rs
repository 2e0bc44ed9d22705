//! Draws how a batch's tiles are spread over the workers: two orders, one above the other, on the same scales.

use std::fmt::Write;

use super::schedule::{Batch, Deal, ratio};

const WIDTH: f64 = 1240.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 1188.0;
/// Height of the stacked columns, of the strip below them, and from one panel to the next.
const STACK: f64 = 230.0;
const STRIP: f64 = 26.0;
const PANEL: f64 = 368.0;
/// First panel's heading.
const TOP: f64 = 132.0;
/// Colours of the tile ramp that are told apart.
const SHADES: usize = 24;

type Colour = [f64; 3];
/// Small to large tiles.
const TILE_RAMP: [Colour; 4] =
    [[229.0, 241.0, 232.0], [124.0, 198.0, 190.0], [43.0, 131.0, 168.0], [24.0, 52.0, 110.0]];
/// Load below, at and above the mean.
const LOAD_RAMP: [Colour; 5] =
    [[33.0, 102.0, 172.0], [146.0, 197.0, 222.0], [244.0, 243.0, 238.0], [244.0, 165.0, 130.0], [178.0, 24.0, 43.0]];

/// What both panels share.
struct Scale {
    /// Busiest worker of either order: the top of the axis.
    axis: f64,
    largest_tile: f64,
    mean: f64,
    /// Largest distance of a load from the mean.
    deviation: f64,
}

/// The picture for `workers` workers, as the text of an SVG file.
pub fn render(batch: &Batch, workers: u32) -> String {
    let deals = [
        ("Batch order, dealt round robin", batch.naive(workers)),
        ("jfa: longest first, dealt in a zigzag", batch.scheduled(workers)),
    ];
    let loads = deals.each_ref().map(|(_, deal)| deal.load());
    let mean = loads[0].mean();
    let all = || loads.iter().flat_map(|load| &load.0);
    let scale = Scale {
        axis: all().copied().max().unwrap_or(0).max(1) as f64 * 1.04,
        largest_tile: deals[0].1.largest().max(1) as f64,
        mean,
        deviation: all().map(|&load| (load as f64 - mean).abs()).fold(1.0, f64::max),
    };
    let height = TOP + 2.0 * PANEL + 96.0;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' \
         font-family='Inter, Helvetica, Arial, \"DejaVu Sans\", sans-serif' font-size='14' fill='#222'>\n\
         <rect width='{WIDTH}' height='{height}' fill='#fff'/>"
    );
    heading(&mut svg, batch, workers);
    for (i, (name, deal)) in deals.iter().enumerate() {
        panel(&mut svg, TOP + i as f64 * PANEL, name, deal, &scale);
    }
    legends(&mut svg, TOP + 2.0 * PANEL + 12.0, &scale);
    svg + "</svg>\n"
}

fn heading(svg: &mut String, batch: &Batch, workers: u32) {
    let (shortest, longest) = (batch.lengths.iter().min().unwrap_or(&0), batch.lengths.iter().max().unwrap_or(&0));
    let (sequences, tiles) = (batch.lengths.len() as f64, batch.naive(1).workers.concat().len() as f64);
    let title = format!("Load of {workers} workers, one batch in two orders");
    text(svg, LEFT, 44.0, "start", "font-size='24' font-weight='bold'", &title);
    let shape = format!(
        "Attention forward of {} queries and {} heads over {} sequences of {shortest} to {longest} keys: {} tiles.",
        batch.queries,
        batch.heads,
        grouped(sequences),
        grouped(tiles)
    );
    text(svg, LEFT, 72.0, "start", "font-size='15' fill='#555'", &shape);
    let reading = "A column is a worker, a cell in it is a tile, as high as the (query, key) pairs it computes. \
                   The strip below shows the sum.";
    text(svg, LEFT, 93.0, "start", "font-size='15' fill='#555'", reading);
}

fn panel(svg: &mut String, top: f64, name: &str, deal: &Deal, scale: &Scale) {
    let load = deal.load();
    text(svg, LEFT, top + 16.0, "start", "font-size='18' font-weight='bold'", name);
    let numbers = format!(
        "max {} · mean {} · <tspan font-weight='bold'>max / mean {:.3}</tspan>",
        grouped(load.max() as f64),
        grouped(load.mean()),
        ratio(&load)
    );
    text(svg, RIGHT, top + 16.0, "end", "font-size='16'", &numbers);
    let base = top + 30.0 + STACK;
    let y = |pairs: f64| base - pairs / scale.axis * STACK;
    axis(svg, &y, scale);
    // The time that a worker waits for the busiest one.
    let width = (RIGHT - LEFT) / load.0.len().max(1) as f64;
    let gap = if width > 4.0 { 1.0 } else { 0.0 };
    let (mut idle, mut shades) = (String::new(), vec![String::new(); SHADES]);
    for (i, tiles) in deal.workers.iter().enumerate() {
        let x = LEFT + i as f64 * width;
        let mut sum = 0.0;
        for &pairs in tiles {
            let (low, high) = (y(sum), y(sum + pairs as f64));
            sum += pairs as f64;
            let shade = (pairs as f64 / scale.largest_tile * (SHADES - 1) as f64).round() as usize;
            cell(&mut shades[shade], x, width - gap, high, low - high - 0.35);
        }
        let full = y(load.max() as f64);
        cell(&mut idle, x, width - gap, full, y(sum) - full);
    }
    let _ = writeln!(svg, "<path fill='#ececec' d='{idle}'/>");
    for (i, path) in shades.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let colour = hex(ramp(&TILE_RAMP, i as f64 / (SHADES - 1) as f64));
        let _ = writeln!(svg, "<path fill='{colour}' d='{path}'/>");
    }
    let mean = y(scale.mean);
    let _ = writeln!(
        svg,
        "<path d='M{LEFT} {mean:.1}H{RIGHT}' stroke='#c0392b' stroke-width='1.6' stroke-dasharray='7 4' fill='none'/>"
    );
    text(svg, RIGHT + 6.0, mean + 4.5, "start", "font-size='13' fill='#c0392b'", "mean");
    strip(svg, base + 8.0, width, &load.0, scale);
}

fn axis(svg: &mut String, y: &dyn Fn(f64) -> f64, scale: &Scale) {
    for pairs in ticks(0.0, scale.axis) {
        let at = y(pairs);
        let _ = writeln!(svg, "<path d='M{LEFT} {at:.1}H{RIGHT}' stroke='#dcdcdc' fill='none'/>");
        text(svg, LEFT - 8.0, at + 4.5, "end", "font-size='13' fill='#555'", &short(pairs));
    }
    let (x, middle) = (24.0, y(scale.axis / 2.0));
    let turned = format!("font-size='13' fill='#555' transform='rotate(-90 {x} {middle:.1})'");
    text(svg, x, middle, "middle", &turned, "(query, key) pairs");
}

/// One cell a worker, coloured by its load; a browser shows the number.
fn strip(svg: &mut String, top: f64, width: f64, loads: &[u64], scale: &Scale) {
    text(svg, LEFT - 8.0, top + STRIP / 2.0 + 4.5, "end", "font-size='13' fill='#555'", "sum");
    for (i, &load) in loads.iter().enumerate() {
        let x = LEFT + i as f64 * width;
        let colour = hex(ramp(&LOAD_RAMP, 0.5 + 0.5 * (load as f64 - scale.mean) / scale.deviation));
        let _ = writeln!(
            svg,
            "<rect x='{x:.2}' y='{top}' width='{width:.2}' height='{STRIP}' fill='{colour}' shape-rendering='crispEdges'>\
             <title>worker {i}: {} pairs</title></rect>",
            grouped(load as f64)
        );
    }
    let (height, right) = (STRIP, RIGHT - LEFT);
    let frame = format!("<rect x='{LEFT}' y='{top}' width='{right}' height='{height}' fill='none' stroke='#999'/>");
    let _ = writeln!(svg, "{frame}");
    let below = top + STRIP + 18.0;
    let last = loads.len().saturating_sub(1);
    for i in (0..loads.len()).filter(|i| i % 20 == 0 && last - i > 6 || *i == last) {
        let x = LEFT + (i as f64 + 0.5) * width;
        text(svg, x, below, "middle", "font-size='13' fill='#555'", &i.to_string());
    }
    text(svg, (LEFT + RIGHT) / 2.0, below + 19.0, "middle", "font-size='13' fill='#555'", "worker");
}

fn legends(svg: &mut String, top: f64, scale: &Scale) {
    legend(svg, LEFT, top, 320.0, &TILE_RAMP, "Cells: pairs of one tile", [0.0, scale.largest_tile]);
    let loads = [scale.mean - scale.deviation, scale.mean + scale.deviation];
    legend(svg, LEFT + 400.0, top, 420.0, &LOAD_RAMP, "Strip: pairs of one worker, palest at the mean", loads);
    let x = LEFT + 888.0;
    let _ = writeln!(svg, "<rect x='{x}' y='{}' width='26' height='16' fill='#ececec' stroke='#bbb'/>", top + 14.0);
    text(svg, x + 34.0, top + 21.0, "start", "font-size='14'", "idle until the busiest");
    text(svg, x + 34.0, top + 39.0, "start", "font-size='14'", "worker is done");
}

fn legend(svg: &mut String, x: f64, top: f64, width: f64, colours: &[Colour], title: &str, [low, high]: [f64; 2]) {
    text(svg, x, top, "start", "font-size='14' font-weight='bold'", title);
    let id = format!("ramp{x}");
    let _ = write!(svg, "<linearGradient id='{id}'>");
    for (i, &colour) in colours.iter().enumerate() {
        let offset = i as f64 / (colours.len() - 1) as f64;
        let _ = write!(svg, "<stop offset='{offset}' stop-color='{}'/>", hex(colour));
    }
    let bar = top + 12.0;
    let _ = writeln!(
        svg,
        "</linearGradient>\n<rect x='{x}' y='{bar}' width='{width}' height='16' fill='url(#{id})' stroke='#999'/>"
    );
    for value in ticks(low, high) {
        let at = x + (value - low) / (high - low) * width;
        let _ = writeln!(svg, "<path d='M{at:.1} {}v5' stroke='#666'/>", bar + 16.0);
        text(svg, at, bar + 37.0, "middle", "font-size='13' fill='#555'", &short(value));
    }
}

/// Appends a rectangle to the data of a path.
fn cell(path: &mut String, x: f64, width: f64, y: f64, height: f64) {
    if height > 0.0 {
        let _ = write!(path, "M{x:.2} {y:.2}h{width:.2}v{height:.2}h-{width:.2}z");
    }
}

/// `content` is markup.
fn text(svg: &mut String, x: f64, y: f64, anchor: &str, style: &str, content: &str) {
    let _ = writeln!(svg, "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}' {style}>{content}</text>");
}

/// The colour at `t`, 0 to 1, of evenly spaced colours.
fn ramp(colours: &[Colour], t: f64) -> Colour {
    let at = t.clamp(0.0, 1.0) * (colours.len() - 1) as f64;
    let i = (at as usize).min(colours.len() - 2);
    std::array::from_fn(|c| colours[i][c] + (at - i as f64) * (colours[i + 1][c] - colours[i][c]))
}

fn hex(colour: Colour) -> String {
    let [r, g, b] = colour.map(|c| c.round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Three to six round numbers from `low` to `high`.
fn ticks(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let raw = (high - low) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|m| m * power).into_iter().find(|&step| step >= raw).unwrap_or(10.0 * power);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(move |i| i as f64 * step)
}

/// A round number for an axis.
fn short(value: f64) -> String {
    if value >= 1e6 { format!("{} M", value / 1e6) } else { grouped(value) }
}

/// An integer with a comma between groups of three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!(
            ["0", "999", "1,000", "12,345,678"],
            [0.0, 999.0, 1e3, 12_345_678.0].map(grouped).each_ref().map(String::as_str)
        );
    }

    #[test]
    fn every_worker_and_both_loads_are_drawn() {
        let batch = Batch { lengths: vec![5, 0, 300, 40], queries: 64, heads: 2 };
        let svg = render(&batch, 4);
        // Batch order: tiles of 320, 19200 and 2560 pairs, two heads each, over four workers.
        let pairs = [2880, 2880, 19200, 19200].map(|load| grouped(f64::from(load)));
        for (i, load) in pairs.iter().enumerate() {
            assert!(svg.contains(&format!("worker {i}: {load} pairs")), "worker {i}");
        }
        assert_eq!(svg.matches("<title>").count(), 8);
    }
}
