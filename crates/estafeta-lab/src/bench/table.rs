//! The results of a benchmark: for people, as Markdown, or as JSON objects.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::Bench;
use super::plot::Panel;
use crate::paint::{FAINT, Paint};
use crate::quantile::quantile;
use crate::report::json_line;
use crate::text::{figure, wrapped};

/// A column: its key for programs, its heading for people, and its number of decimals.
pub struct TableColumn {
    pub key: &'static str,
    pub heading: &'static str,
    pub decimals: usize,
}

pub const fn column(key: &'static str, heading: &'static str, decimals: usize) -> TableColumn {
    TableColumn { key, heading, decimals }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Number(f64),
    /// There is no such figure.
    Missing,
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Missing }
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as f64)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

/// The last four columns of a table of times. [`times`] fills them.
pub const TIMES: [TableColumn; 4] = [
    column("samples", "samples", 0),
    column("p50Ms", "p50 ms", 2),
    column("p99Ms", "p99 ms", 2),
    column("maxMs", "max ms", 2),
];

pub fn times(mut samples: Vec<f64>) -> [Cell; 4] {
    samples.sort_by(f64::total_cmp);
    let at = |share| quantile(&samples, share).into();
    [samples.len().into(), at(0.5), at(0.99), at(1.0)]
}

/// What stands between two columns.
const COLUMN_GAP: &str = "  ";

pub struct Table {
    pub bench: Bench,
    /// What was measured, and how.
    pub title: String,
    pub columns: Vec<TableColumn>,
    /// How many of the first columns name a row. The others hold its figures.
    pub keys: usize,
    pub rows: Vec<Vec<Cell>>,
    /// How to read the table, one sentence each.
    pub notes: Vec<String>,
    /// The panels of its plot.
    pub panels: Vec<Panel>,
}

impl Table {
    /// Writes the table for people, on a terminal of this width. None: the output is no terminal, and lines may have
    /// any length. A table that is wider than the terminal is written in parts, one below the other.
    pub fn write(&self, out: &mut impl Write, paint: Paint, width: Option<usize>) -> io::Result<()> {
        let room = width.unwrap_or(usize::MAX);
        writeln!(out)?;
        for line in wrapped(&format!("{}: {}", self.bench.name(), self.title), room) {
            writeln!(out, "{line}")?;
        }
        let headings: Vec<String> = self.columns.iter().map(|column| column.heading.to_owned()).collect();
        let lines = [vec![headings], self.text()].concat();
        let width_of = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width_of).collect();
        for (index, columns) in self.parts(&widths, room).iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            self.write_part(out, paint, &lines, columns, &widths)?;
        }
        for note in self.notes.iter().flat_map(|note| wrapped(note, room)) {
            writeln!(out, "{}", paint.paint(FAINT, &note))?;
        }
        Ok(())
    }

    /// Divides the columns into parts that fit into the room. Each part repeats the columns that name a row.
    fn parts(&self, widths: &[usize], room: usize) -> Vec<Vec<usize>> {
        let width_with_gap = |at: &usize| widths[*at] + COLUMN_GAP.len();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for (at, width) in widths.iter().enumerate().skip(self.keys) {
            match parts.last_mut() {
                Some(part) if part.iter().map(width_with_gap).sum::<usize>() + width <= room => part.push(at),
                _ => parts.push((0..self.keys).chain([at]).collect()),
            }
        }
        parts
    }

    fn write_part(
        &self,
        out: &mut impl Write,
        paint: Paint,
        lines: &[Vec<String>],
        columns: &[usize],
        widths: &[usize],
    ) -> io::Result<()> {
        for (index, line) in lines.iter().enumerate() {
            let cells = columns.iter().map(|&at| {
                let (cell, width) = (&line[at], widths[at]);
                if self.is_text(at) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let line = cells.collect::<Vec<_>>().join(COLUMN_GAP);
            let line = line.trim_end();
            writeln!(out, "{}", if index == 0 { paint.paint(FAINT, line) } else { line.to_owned() })?;
        }
        Ok(())
    }

    pub fn write_markdown(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\n### {}: {}\n", self.bench.name(), self.title)?;
        let headings: Vec<&str> = self.columns.iter().map(|column| column.heading).collect();
        writeln!(out, "| {} |", headings.join(" | "))?;
        let rule = (0..self.columns.len()).map(|at| if self.is_text(at) { "---" } else { "---:" });
        writeln!(out, "|{}|", rule.collect::<Vec<_>>().join("|"))?;
        self.text().iter().try_for_each(|row| writeln!(out, "| {} |", row.join(" | ")))?;
        self.notes.iter().try_for_each(|note| writeln!(out, "\n{note}"))
    }

    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        for row in &self.rows {
            let mut object = json!({"bench": self.bench.name()});
            for (column, cell) in self.columns.iter().zip(row) {
                object[column.key] = match cell {
                    Cell::Text(text) => json!(text),
                    Cell::Number(number) if column.decimals == 0 => json!(number.round() as i64),
                    // Finer than what people see, but without noise in the last digits.
                    Cell::Number(number) => json!((number * 1e4).round() / 1e4),
                    Cell::Missing => Value::Null,
                };
            }
            writeln!(out, "{}", json_line(&object))?;
        }
        Ok(())
    }

    /// Returns the cells of a column. None if there is no such column.
    pub fn cells(&self, key: &str) -> Option<impl Iterator<Item = &Cell>> {
        let at = self.columns.iter().position(|column| column.key == key)?;
        Some(self.rows.iter().map(move |row| &row[at]))
    }

    pub fn column(&self, key: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.key == key)
    }

    fn is_text(&self, at: usize) -> bool {
        self.rows.iter().any(|row| matches!(row[at], Cell::Text(_)))
    }

    fn text(&self) -> Vec<Vec<String>> {
        let show = |(column, cell): (&TableColumn, &Cell)| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => figure(*number, column.decimals),
            Cell::Missing => "-".to_owned(),
        };
        self.rows.iter().map(|row| self.columns.iter().zip(row).map(show).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            bench: Bench::Idle,
            title: "nothing to do".to_owned(),
            columns: vec![column("what", "what", 0), column("perS", "messages/s", 0), column("us", "us", 2)],
            keys: 1,
            rows: vec![
                vec!["a ring".into(), 1_234_567.4.into(), 1000.756.into()],
                vec!["b".into(), 7_usize.into(), f64::NAN.into()],
            ],
            notes: vec!["A note.".to_owned()],
            panels: Vec::new(),
        }
    }

    fn written(write: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_markdown_and_json_show_the_same_figures() {
        let table = table();
        assert_eq!(
            written(|out| table.write(out, Paint(false), None)),
            "\nidle: nothing to do\nwhat    messages/s        us\na ring   1,234,567  1,000.76\n\
             b                7         -\nA note.\n"
        );
        assert_eq!(
            written(|out| table.write_markdown(out)),
            "\n### idle: nothing to do\n\n| what | messages/s | us |\n|---|---:|---:|\n| a ring | 1,234,567 | 1,000.76 |\n\
             | b | 7 | - |\n\nA note.\n"
        );
        assert_eq!(
            written(|out| table.write_json(out)),
            "{\"bench\":\"idle\",\"what\":\"a ring\",\"perS\":1234567,\"us\":1000.756}\n\
             {\"bench\":\"idle\",\"what\":\"b\",\"perS\":7,\"us\":null}\n"
        );
    }

    #[test]
    fn a_table_that_is_wider_than_the_terminal_is_written_in_parts_that_name_every_row() {
        let table = table();
        let fitted = |width| written(|out| table.write(out, Paint(false), Some(width)));
        assert_eq!(fitted(28), written(|out| table.write(out, Paint(false), None)), "it just fits");
        assert_eq!(
            fitted(20),
            "\nidle: nothing to do\n\
             what    messages/s\na ring   1,234,567\nb                7\n\n\
             what          us\na ring  1,000.76\nb              -\n\
             A note.\n"
        );
        assert!(fitted(12).starts_with("\nidle:\nnothing to\ndo\nwhat    messages/s\n"), "{}", fitted(12));
    }
}
