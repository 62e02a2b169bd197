//! The same for SDKs in other languages: prints the addresses as JSON, and the figures when its
//! input ends.
//!
//! Usage: packrat-path CERTIFICATE [SERVER]    the QUIC server's certificate is written to this file; one path to
//! it loses, and one does not; another one leads to the server, if one is named
//!
//! Or: packrat-path --several, several servers behind several gateways, without loss; it ends with a line on whether the host
//! was on time
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};

use packrat_path::{Datagrams, FILE_BYTES, LossyPath, Quic, SERVER_NAME, Several};

/// Share of datagrams that the last mile loses, both ways.
const LAST_MILE_LOSS: f64 = 0.04;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let certificate = std::env::args_os().nth(1).unwrap();
    if certificate == "--several" {
        let several = Several::start();
        let gateways: Vec<_> = several.addresses().map(|at| format!("\"{at}\"")).collect();
        println!(r#"{{"gateways":[{}]}}"#, gateways.join(","));
        std::io::stdout().flush().unwrap();
        input_ends().await;
        println!(r#"{{"on_time":{}}}"#, several.is_on_time());
        return;
    }
    let quic = Quic::start();
    let server = Datagrams::start();
    let path = LossyPath::start(quic.address(), LAST_MILE_LOSS);
    let lossless = LossyPath::start(quic.address(), 0.0);
    let plain = LossyPath::start(server.address(), LAST_MILE_LOSS);
    let named = std::env::args()
        .nth(2)
        .map(|server| LossyPath::start(server.parse().unwrap(), LAST_MILE_LOSS));
    let to_named = named.as_ref().map(|path| path.address().to_string()).unwrap_or_default();
    std::fs::write(certificate, quic.certificate()).unwrap();
    let sum: String = packrat_path::expected().iter().map(|byte| format!("{byte:02x}")).collect();
    println!(
        r#"{{"name":"{SERVER_NAME}","quic":"{}","lossless":"{}","bytes":{FILE_BYTES},"sha256":"{sum}","datagrams":"{}","server":"{to_named}"}}"#,
        path.address(),
        lossless.address(),
        plain.address()
    );
    std::io::stdout().flush().unwrap();
    input_ends().await;
    let paths = [&path, &lossless, &plain].into_iter().chain(&named);
    let is_on_time = paths.into_iter().all(LossyPath::is_on_time);
    println!(
        r#"{{"on_time":{},"lossless_sent":{},"quic_sent":{},"quic_lost":{},"quic_lost_upwards":{},"quic_dropped":{},"declared_lost":{},"datagrams_lost":{},"server_lost":{}}}"#,
        is_on_time,
        lossless.sent(),
        path.sent(),
        path.lost(),
        path.lost_upwards(),
        path.dropped(),
        quic.declared_lost().await,
        plain.lost(),
        named.map_or(0, |path| path.lost())
    );
}

async fn input_ends() {
    let read = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(read).await.unwrap().unwrap();
}
