//! The gateway's metrics, in Prometheus' text format.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest time for an answer, on a machine that is busy with other things.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest accepted answer.
const LARGEST_ANSWER: u64 = 16 << 20;

/// Values of Packrat's metrics, summed over their labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Reads the text format; keeps only Packrat's own metrics. Envoy can be configured to put
    /// `envoy_packrat_` in front of their names.
    pub(crate) fn parse(text: &str) -> Self {
        let mut values = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let name = series.split('{').next().unwrap_or(series);
            let name = name.strip_prefix("envoy_packrat_").unwrap_or(name);
            if let (Some(name), Ok(value)) = (name.strip_prefix("packrat_"), value.parse::<f64>()) {
                *values.entry(name.to_owned()).or_insert(0.0) += value;
            }
        }
        Self(values)
    }

    /// The value of `packrat_<name>`; 0 if it is missing, as counters appear with their first
    /// increment.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |value| value.max(0.0) as u64)
    }

    /// The sum of all metrics whose name begins with `packrat_<prefix>`.
    pub(crate) fn sum_of(&self, prefix: &str) -> u64 {
        self.0
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(_, value)| value.max(0.0) as u64)
            .sum()
    }
}

/// The body of the answer to a GET of `path`, which must have status 200.
pub(crate) fn http_get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut reader = BufReader::new(stream.take(LARGEST_ANSWER));

    let mut status = String::new();
    reader.read_line(&mut status)?;
    if status.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!("{path} was answered with {:?}", status.trim())));
    }
    let mut chunked = false;
    let mut length = None;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or((&header, ""));
        match name.to_ascii_lowercase().as_str() {
            "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
            "content-length" => length = value.trim().parse::<u64>().ok(),
            _ => {}
        }
    }
    let mut body = Vec::new();
    match (chunked, length) {
        (true, _) => while read_chunk(&mut reader, &mut body)? {},
        (false, Some(length)) => {
            reader.take(length).read_to_end(&mut body)?;
        }
        (false, None) => {
            reader.read_to_end(&mut body)?;
        }
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Reads a chunk (RFC 9112, section 7.1); false after the last one.
fn read_chunk(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<bool> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let digits = line.trim().split(';').next().unwrap_or_default();
    let length = u64::from_str_radix(digits, 16).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("bad chunk length {digits:?}"))
    })?;
    reader.by_ref().take(length).read_to_end(body)?;
    line.clear();
    reader.read_line(&mut line)?;
    Ok(length > 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sums_over_labels_and_skips_foreign_metrics() {
        let metrics = Metrics::parse(
            "# TYPE packrat_repairs_total counter\n\
             packrat_repairs_total{route=\"a\",gateway=\"x y\"} 4\n\
             envoy_packrat_packrat_repairs_total{route=\"b\",gateway=\"x y\"} 3\n\
             packrat_cache_bytes 1.5e3\n\
             packrat_resets_by_client_total 1\n\
             packrat_resets_by_gateway_total 2\n\
             envoy_server_live 1\n",
        );
        assert_eq!(metrics.get("repairs_total"), 7);
        assert_eq!(metrics.get("cache_bytes"), 1500);
        assert_eq!(metrics.sum_of("resets_"), 3);
        assert_eq!(metrics.get("server_live"), 0);
    }

    fn answering(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap()).lines();
            while request.next().unwrap().unwrap() != "" {}
            stream.write_all(answer.as_bytes()).unwrap();
        });
        address
    }

    #[test]
    fn reads_chunked_and_plain_answers() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n";
        assert_eq!(http_get(answering(chunked), "/").unwrap(), "hello, world");
        let plain = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more";
        assert_eq!(http_get(answering(plain), "/").unwrap(), "hello");
        let closed = "HTTP/1.1 200 OK\r\n\r\nuntil the end";
        assert_eq!(http_get(answering(closed), "/").unwrap(), "until the end");
        assert!(http_get(answering("HTTP/1.1 503 Not Yet\r\n\r\n"), "/").is_err());
    }
}
