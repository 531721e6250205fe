//! The colours of the terminal in the picture.

use estafeta_testbed::vt100::{Cell, Color};

pub type Rgb = (u8, u8, u8);

pub const BACKGROUND: Rgb = (0x12, 0x16, 0x1e);
const TEXT: Rgb = (0xd5, 0xda, 0xe3);
const ANSI: [Rgb; 16] = [
    (0x2a, 0x30, 0x3c),
    (0xe8, 0x67, 0x71),
    (0x8f, 0xc8, 0x7a),
    (0xe6, 0xc0, 0x73),
    (0x6c, 0xa8, 0xf0),
    (0xc5, 0x8a, 0xe8),
    (0x5e, 0xc4, 0xd0),
    (0xc3, 0xc9, 0xd4),
    (0x6b, 0x74, 0x84),
    (0xff, 0x8b, 0x92),
    (0xae, 0xe3, 0x99),
    (0xff, 0xdb, 0x91),
    (0x94, 0xc4, 0xff),
    (0xdd, 0xae, 0xfa),
    (0x86, 0xe1, 0xec),
    (0xff, 0xff, 0xff),
];

/// The colours of a cell's text and of its background.
pub fn of(cell: &Cell) -> (Rgb, Rgb) {
    let text = rgb(cell.fgcolor(), TEXT);
    let behind = rgb(cell.bgcolor(), BACKGROUND);
    let (text, behind) = if cell.inverse() { (behind, text) } else { (text, behind) };
    (if cell.dim() { halfway(text, behind) } else { text }, behind)
}

pub fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn rgb(color: Color, default: Rgb) -> Rgb {
    match color {
        Color::Default => default,
        Color::Rgb(red, green, blue) => (red, green, blue),
        Color::Idx(index @ 0..16) => ANSI[usize::from(index)],
        Color::Idx(index @ 16..232) => {
            let place = index - 16;
            let step = |digit: u8| if digit == 0 { 0 } else { 55 + 40 * digit };
            (step(place / 36), step(place / 6 % 6), step(place % 6))
        }
        Color::Idx(index) => {
            let grey = 8 + 10 * (index - 232);
            (grey, grey, grey)
        }
    }
}

fn halfway(one: Rgb, other: Rgb) -> Rgb {
    let middle = |a: u8, b: u8| a.midpoint(b);
    (middle(one.0, other.0), middle(one.1, other.1), middle(one.2, other.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_terminal_colour_is_converted() {
        let of = |color| hex(rgb(color, TEXT));
        assert_eq!(of(Color::Default), hex(TEXT));
        assert_eq!(of(Color::Idx(1)), "#e86771");
        assert_eq!(of(Color::Idx(16)), "#000000");
        assert_eq!(of(Color::Idx(196)), "#ff0000");
        assert_eq!(of(Color::Idx(67)), "#5f87af");
        assert_eq!(of(Color::Idx(231)), "#ffffff");
        assert_eq!((of(Color::Idx(232)), of(Color::Idx(255))), ("#080808".into(), "#eeeeee".into()));
        assert_eq!(of(Color::Rgb(1, 2, 255)), "#0102ff");
    }
}
