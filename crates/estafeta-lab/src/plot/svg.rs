//! SVG elements with their attributes, texts and children.
//!
//! They are written by hand, because the crate `svg` would not make this file shorter. It puts line breaks around the
//! text of each `text` element, and the picture of a terminal would show them as spaces. It also rounds no number.

use std::fmt::{self, Write as _};

/// An SVG element and everything inside it.
#[derive(Clone, Debug)]
pub struct SvgElement {
    name: &'static str,
    attributes: String,
    content: String,
}

impl SvgElement {
    pub fn new(name: &'static str) -> Self {
        Self { name, attributes: String::new(), content: String::new() }
    }

    pub fn set(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.attributes, " {name}=\"{}\"", escape(value));
        self
    }

    /// Sets an attribute to a number, rounded to hundredths.
    pub fn set_number(self, name: &str, value: f64) -> Self {
        self.set(name, &rounded(value))
    }

    /// Appends text.
    pub fn text(mut self, text: &str) -> Self {
        self.content.push_str(&escape(text));
        self
    }

    /// Adds a title, which browsers show when the mouse rests on the element.
    pub fn title(self, title: &str) -> Self {
        self.child(Self::new("title").text(title))
    }

    /// Appends a child.
    pub fn child(mut self, child: Self) -> Self {
        self.extend([child]);
        self
    }
}

impl Extend<Self> for SvgElement {
    fn extend<T: IntoIterator<Item = Self>>(&mut self, children: T) {
        for child in children {
            let _ = write!(self.content, "\n{child}");
        }
    }
}

impl fmt::Display for SvgElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, attributes, content } = self;
        match content.as_str() {
            "" => write!(f, "<{name}{attributes}/>"),
            // Children stand on their own lines, so the closing tag does too.
            content if content.starts_with('\n') => write!(f, "<{name}{attributes}>{content}\n</{name}>"),
            content => write!(f, "<{name}{attributes}>{content}</{name}>"),
        }
    }
}

/// A picture inside an HTML page, scaled by the style of the page.
pub fn inline(width: f64, height: f64, label: &str) -> SvgElement {
    let view = format!("0 0 {} {}", rounded(width), rounded(height));
    SvgElement::new("svg").set("viewBox", &view).set("role", "img").set("aria-label", label)
}

/// A picture in a file, with a style sheet for its elements.
pub fn document(width: f64, height: f64, title: &str, style: &str) -> SvgElement {
    inline(width, height, title)
        .set("xmlns", "http://www.w3.org/2000/svg")
        .set_number("width", width)
        .set_number("height", height)
        .title(title)
        .child(SvgElement::new("style").text(style))
}

pub fn group() -> SvgElement {
    SvgElement::new("g")
}

pub fn rect(x: f64, y: f64, width: f64, height: f64) -> SvgElement {
    let rect = SvgElement::new("rect").set_number("x", x).set_number("y", y);
    rect.set_number("width", width).set_number("height", height)
}

pub fn line((x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> SvgElement {
    let line = SvgElement::new("line").set_number("x1", x1).set_number("y1", y1);
    line.set_number("x2", x2).set_number("y2", y2)
}

pub fn circle((x, y): (f64, f64), radius: f64) -> SvgElement {
    SvgElement::new("circle").set_number("cx", x).set_number("cy", y).set_number("r", radius)
}

/// A line through all points.
pub fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> SvgElement {
    let points = points.into_iter().map(|(x, y)| format!("{},{}", rounded(x), rounded(y)));
    let points: Vec<String> = points.collect();
    SvgElement::new("polyline").set("points", &points.join(" ")).set("fill", "none")
}

/// A text whose baseline begins at this point, unless its `text-anchor` differs.
pub fn text(x: f64, y: f64, text: &str) -> SvgElement {
    SvgElement::new("text").set_number("x", x).set_number("y", y).text(text)
}

/// Escapes text for SVG and for HTML, inside and outside attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn rounded(number: f64) -> String {
    ((number * 100.0).round() / 100.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_attributes_are_escaped_and_numbers_are_rounded() {
        let element = text(1.0, 2.0 / 3.0, "<b> & \"c\"").set("class", "\"><script>");
        let expected = "<text x=\"1\" y=\"0.67\" class=\"&quot;&gt;&lt;script&gt;\">\
                        &lt;b&gt; &amp; &quot;c&quot;</text>";
        assert_eq!(element.to_string(), expected);
    }

    #[test]
    fn white_space_is_added_around_children_but_never_around_text() {
        let mut parent = group().child(text(0.0, 0.0, " a ")).child(group());
        parent.extend([rect(0.0, 0.0, 1.0, 1.5).title("b")]);
        let expected = "<g>\n<text x=\"0\" y=\"0\"> a </text>\n<g/>\n\
                        <rect x=\"0\" y=\"0\" width=\"1\" height=\"1.5\">\n<title>b</title>\n</rect>\n</g>";
        assert_eq!(parent.to_string(), expected);
    }

    #[test]
    fn only_a_picture_in_a_file_names_its_namespace_and_size() {
        let inline = inline(10.0, 20.5, "a plot").to_string();
        assert_eq!(inline, "<svg viewBox=\"0 0 10 20.5\" role=\"img\" aria-label=\"a plot\"/>");
        let file = document(10.0, 20.5, "a plot", "a{}").to_string();
        assert!(
            file.contains(" xmlns=\"http://www.w3.org/2000/svg\" width=\"10\" height=\"20.5\">"),
            "{file}"
        );
        assert!(file.ends_with("<title>a plot</title>\n<style>a{}</style>\n</svg>"), "{file}");
    }
}
