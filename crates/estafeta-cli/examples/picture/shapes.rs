//! Draws characters that are pictures themselves: frames, bars and dots. Fonts draw them with gaps, or not at all. So
//! they are drawn as paths that fill their cell.

use std::fmt::Write as _;

/// The path data of one character, by the way it is drawn.
pub enum Shape {
    /// Filled up to the sides of the cell, where the next bar begins.
    Bar(String),
    /// Filled.
    Dots(String),
    /// Drawn as a line, which is thick if `heavy`.
    Stroke { path: String, heavy: bool },
}

/// The shape of a character in the cell at this corner and of this size. Returns None if the font draws the character.
pub fn of(c: char, x: f64, y: f64, width: f64, height: f64) -> Option<Shape> {
    let place = CellArea { x, y, width, height };
    match c {
        // Bars from below, bars from the left, and then the upper half, the right half and a square.
        '\u{2581}'..='\u{2588}' => {
            let part = f64::from(u32::from(c) - 0x2580) / 8.0;
            Some(Shape::Bar(place.area(0.0, 1.0 - part, 1.0, 1.0)))
        }
        '\u{2589}'..='\u{258f}' => {
            let part = f64::from(0x2590 - u32::from(c)) / 8.0;
            Some(Shape::Bar(place.area(0.0, 0.0, part, 1.0)))
        }
        '▀' => Some(Shape::Bar(place.area(0.0, 0.0, 1.0, 0.5))),
        '▐' => Some(Shape::Bar(place.area(0.5, 0.0, 1.0, 1.0))),
        '■' => Some(Shape::Bar(place.area(0.0, 0.25, 1.0, 0.75))),
        '\u{2800}'..='\u{28ff}' => Some(Shape::Dots(place.dots(u32::from(c) - 0x2800))),
        _ => place.frame(c),
    }
}

struct CellArea {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl CellArea {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x + x * self.width, self.y + y * self.height)
    }

    fn area(&self, left: f64, top: f64, right: f64, bottom: f64) -> String {
        let ((left, top), (right, bottom)) = (self.at(left, top), self.at(right, bottom));
        format!("M{left:.2} {top:.2}H{right:.2}V{bottom:.2}H{left:.2}Z")
    }

    /// Braille: dots 1 2 3 down the left side, 4 5 6 down the right side, then 7 and 8 below.
    fn dots(&self, bits: u32) -> String {
        const CORNERS: [(u8, u8); 8] = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
        let radius = self.width * 0.17;
        let mut path = String::new();
        for (bit, (column, row)) in CORNERS.into_iter().enumerate() {
            if bits >> bit & 1 == 1 {
                let (x, y) = self.at(0.25 + 0.5 * f64::from(column), 0.125 + 0.25 * f64::from(row));
                let _ = write!(
                    path,
                    "M{:.2} {y:.2}a{radius:.2} {radius:.2} 0 1 0 {:.2} 0a{radius:.2} {radius:.2} 0 1 0 {:.2} 0Z",
                    x - radius,
                    2.0 * radius,
                    -2.0 * radius
                );
            }
        }
        path
    }

    /// Lines from the middle of the cell to its sides.
    fn frame(&self, c: char) -> Option<Shape> {
        let (left, top, right, bottom) = ((0.0, 0.5), (0.5, 0.0), (1.0, 0.5), (0.5, 1.0));
        let (ends, heavy): (&[_], bool) = match c {
            '─' | '━' => (&[left, right], c == '━'),
            '│' | '┃' => (&[top, bottom], c == '┃'),
            '┌' | '┏' => (&[right, bottom], c == '┏'),
            '┐' | '┓' => (&[left, bottom], c == '┓'),
            '└' | '┗' => (&[right, top], c == '┗'),
            '┘' | '┛' => (&[left, top], c == '┛'),
            '├' | '┣' => (&[top, bottom, right], c == '┣'),
            '┤' | '┫' => (&[top, bottom, left], c == '┫'),
            '┬' | '┳' => (&[left, right, bottom], c == '┳'),
            '┴' | '┻' => (&[left, right, top], c == '┻'),
            '┼' | '╋' => (&[left, right, top, bottom], c == '╋'),
            '╭' => return Some(self.bend(right, bottom)),
            '╮' => return Some(self.bend(left, bottom)),
            '╰' => return Some(self.bend(right, top)),
            '╯' => return Some(self.bend(left, top)),
            _ => return None,
        };
        let (x, y) = self.at(0.5, 0.5);
        let mut path = String::new();
        for (end_x, end_y) in ends.iter().map(|end| self.at(end.0, end.1)) {
            let _ = write!(path, "M{x:.2} {y:.2}L{end_x:.2} {end_y:.2}");
        }
        Some(Shape::Stroke { path, heavy })
    }

    fn bend(&self, side: (f64, f64), end: (f64, f64)) -> Shape {
        let ((x, y), (end_x, end_y)) = (self.at(side.0, side.1), self.at(end.0, end.1));
        let (middle_x, middle_y) = self.at(0.5, 0.5);
        let path = format!("M{x:.2} {y:.2}Q{middle_x:.2} {middle_y:.2} {end_x:.2} {end_y:.2}");
        Shape::Stroke { path, heavy: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(c: char) -> String {
        match of(c, 10.0, 20.0, 8.0, 16.0) {
            Some(Shape::Bar(path) | Shape::Dots(path) | Shape::Stroke { path, .. }) => path,
            None => String::new(),
        }
    }

    #[test]
    fn bars_fill_their_share_of_the_cell() {
        assert_eq!(path('█'), "M10.00 20.00H18.00V36.00H10.00Z");
        assert_eq!(path('▁'), "M10.00 34.00H18.00V36.00H10.00Z");
        assert_eq!(path('▌'), "M10.00 20.00H14.00V36.00H10.00Z");
    }

    #[test]
    fn frames_meet_at_the_sides_of_the_cell() {
        assert_eq!(path('─'), "M14.00 28.00L10.00 28.00M14.00 28.00L18.00 28.00");
        assert_eq!(path('╭'), "M18.00 28.00Q14.00 28.00 14.00 36.00");
        assert!(matches!(of('┃', 0.0, 0.0, 1.0, 1.0), Some(Shape::Stroke { heavy: true, .. })));
    }

    #[test]
    fn braille_has_a_dot_for_each_bit() {
        assert_eq!(path('⠀'), "");
        assert_eq!(path('⣿').matches('M').count(), 8);
        assert!(path('⢀').starts_with("M14.64 34.00"), "{}", path('⢀'));
    }

    #[test]
    fn letters_are_left_to_the_font() {
        assert_eq!(path('a'), "");
    }
}
