//! An HTTP proxy that connects to one place, whatever it is asked for: a double.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

/// A running proxy; its thread ends with the test.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// The head of each request.
    pub(crate) heads: Receiver<String>,
}

impl Proxy {
    /// Starts a proxy that answers with this status.
    pub(crate) fn start(to: SocketAddr, status: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, heads) = channel();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(client.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
                if tell.send(head).is_err() {
                    return;
                }
                let answer = format!("HTTP/1.1 {status} it\r\n\r\n");
                (&client).write_all(answer.as_bytes()).unwrap();
                if status == 200 {
                    pass(client, TcpStream::connect(to).unwrap());
                }
            }
        });
        Self { address, heads }
    }
}

fn pass(client: TcpStream, server: TcpStream) {
    let ways = [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
    for (mut from, mut to) in ways {
        std::thread::spawn(move || {
            // Either end may leave at any moment.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
}
