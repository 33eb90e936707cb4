//! The memory over time, as a picture.

use std::fmt::Write as _;

use super::meter::Course;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 260.0;
/// The room for the numbers at the left and below.
const LEFT: f64 = 48.0;
const BELOW: f64 = 36.0;
const TOP: f64 = 30.0;
const LINES: u64 = 4;

/// Draws the chart, an SVG that needs no font of its own.
pub fn draw(course: &Course) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let most = course.samples.iter().map(|(_, bytes)| mib(*bytes)).fold(1.0, f64::max);
    // Four steps of five MiB or a multiple.
    let step = (most / LINES as f64 / 5.0).ceil() * 5.0;
    let minutes = course.samples.last().map_or(1.0, |(at, _)| at.as_secs_f64() / 60.0);
    let x = |minute: f64| LEFT + (WIDTH - LEFT - 12.0) * minute / minutes;
    let y = |mib: f64| HEIGHT - BELOW - (HEIGHT - BELOW - TOP) * mib / (step * LINES as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">Resident memory of Listless in MiB, over minutes of load</text>\n"
    );
    for line in 0..=LINES {
        let value = step * line as f64;
        let at = y(value);
        writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#d8dee4\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\" fill=\"#57606a\">{value}</text>",
            WIDTH - 12.0,
            LEFT - 8.0,
            at + 4.0
        )
        .expect("a string takes all");
    }
    let step = (minutes / 6.0).max(1.0).round();
    for number in 0..=(minutes / step) as u64 {
        let minute = step * number as f64;
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#57606a\">{minute}</text>",
            x(minute),
            HEIGHT - BELOW + 18.0
        )
        .expect("a string takes all");
    }
    let points: Vec<String> = course
        .samples
        .iter()
        .map(|(at, bytes)| format!("{:.1},{:.1}", x(at.as_secs_f64() / 60.0), y(mib(*bytes))))
        .collect();
    let points = points.join(" ");
    svg + &format!(
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"#0969da\" stroke-width=\"1.5\"/>\n</svg>\n"
    )
}
