//! A receiver of OTLP over HTTP, with just enough of protobuf to read spans.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A span as it arrived.
#[derive(Clone, Debug, Default)]
pub struct ExportedSpan {
    pub trace: Vec<u8>,
    pub id: Vec<u8>,
    pub parent: Vec<u8>,
    pub name: String,
    pub kind: u64,
    attributes: BTreeMap<String, String>,
    /// The traces and ids of the spans that it is linked with.
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
    pub is_error: bool,
    pub status: String,
}

impl ExportedSpan {
    /// The value of an attribute as text. An attribute that is missing is empty.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// What a link to this span has.
    pub fn context(&self) -> (Vec<u8>, Vec<u8>) {
        (self.trace.clone(), self.id.clone())
    }
}

#[derive(Default)]
struct Received {
    spans: Vec<ExportedSpan>,
    /// The name of the service in each request.
    services: Vec<String>,
}

/// Listens on loopback until the test ends.
pub struct Receiver {
    address: String,
    received: Arc<Mutex<Received>>,
}

impl Receiver {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::<Mutex<Received>>::default();
        let all = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || serve(stream, &all));
            }
        });
        Self { address, received }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn spans(&self) -> Vec<ExportedSpan> {
        self.received.lock().unwrap().spans.clone()
    }

    pub fn resources(&self) -> Vec<String> {
        self.received.lock().unwrap().services.clone()
    }
}

/// Answers the requests of one connection, until it ends.
fn serve(stream: TcpStream, received: &Mutex<Received>) {
    let (mut out, mut requests) = (stream.try_clone().unwrap(), BufReader::new(stream));
    loop {
        let mut line = String::new();
        if requests.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
        let mut length = 0;
        loop {
            let mut header = String::new();
            requests.read_line(&mut header).unwrap();
            let header = header.trim_end().to_lowercase();
            match header.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse().unwrap(),
                Some(("content-type", value)) => assert_eq!(value.trim(), "application/x-protobuf"),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        requests.read_exact(&mut body).unwrap();
        read_request(&body, &mut received.lock().unwrap());
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
        out.write_all(answer.as_bytes()).unwrap();
    }
}

/// A field of a protobuf message. Other kinds than these two are fixed numbers, which the tests do not need.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }

    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            _ => 0,
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    number
}

/// The fields of a protobuf message, with their numbers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let length = match tag & 7 {
            0 => {
                all.push((tag >> 3, Field::Number(varint(&mut bytes))));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("a field of the kind {other}"),
        };
        let (field, rest) = bytes.split_at(length);
        all.push((tag >> 3, if tag & 7 == 2 { Field::Bytes(field) } else { Field::Fixed }));
        bytes = rest;
    }
    all
}

fn only(bytes: &[u8], number: u64) -> impl Iterator<Item = Field<'_>> {
    fields(bytes).into_iter().filter(move |(other, _)| *other == number).map(|(_, field)| field)
}

/// ExportTraceServiceRequest { 1: ResourceSpans { 1: Resource { 1: KeyValue }, 2: ScopeSpans { 2: Span } } }
fn read_request(body: &[u8], received: &mut Received) {
    for resource_spans in only(body, 1) {
        let resource: Vec<_> = only(resource_spans.bytes(), 1).flat_map(|it| only(it.bytes(), 1)).collect();
        let attributes: BTreeMap<_, _> = resource.iter().map(|pair| attribute(pair.bytes())).collect();
        received.services.push(attributes.get("service.name").cloned().unwrap_or_default());
        let scopes = only(resource_spans.bytes(), 2);
        received.spans.extend(scopes.flat_map(|scope| only(scope.bytes(), 2)).map(|it| span(it.bytes())));
    }
}

/// KeyValue { 1: key, 2: AnyValue { 1: text, 2: bool, 3: number } }
fn attribute(bytes: &[u8]) -> (String, String) {
    let key = only(bytes, 1).map(|key| key.text()).collect();
    let value = only(bytes, 2).flat_map(|value| fields(value.bytes()));
    let shown = value.map(|(kind, value)| if kind == 1 { value.text() } else { value.number().to_string() });
    (key, shown.collect())
}

fn span(bytes: &[u8]) -> ExportedSpan {
    let mut span = ExportedSpan::default();
    for (number, field) in fields(bytes) {
        match number {
            1 => span.trace = field.bytes().to_vec(),
            2 => span.id = field.bytes().to_vec(),
            4 => span.parent = field.bytes().to_vec(),
            5 => span.name = field.text(),
            6 => span.kind = field.number(),
            9 => {
                let (key, value) = attribute(field.bytes());
                span.attributes.insert(key, value);
            }
            13 => {
                let part = |number| only(field.bytes(), number).flat_map(|it| it.bytes().to_vec()).collect();
                span.links.push((part(1), part(2)));
            }
            // Status { 2: message, 3: code }
            15 => {
                span.status = only(field.bytes(), 2).map(|it| it.text()).collect();
                span.is_error = only(field.bytes(), 3).any(|it| it.number() == 2);
            }
            _ => {}
        }
    }
    span
}
