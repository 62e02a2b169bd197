//! A WebRTC peer on a socket: str0m, as it is, and optionally Packrat's client between the two.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Instant;

use packrat_media::RtpAssist;
use packrat_wire::estimate::Timestamp;
use str0m::media::MediaData;
use str0m::net::{Protocol, Receive};
use str0m::rtp::RawPacket;
use str0m::rtp::rtcp::Rtcp;
use str0m::{Candidate, Event, Input, Output, Rtc};
use tokio::net::UdpSocket;

/// A peer's RTP packets, seen before encryption and after decryption.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// RTP packets sent: stream (SSRC) and sequence number.
    pub(crate) sent: BTreeSet<(u32, u16)>,
    /// RTP packets received.
    pub(crate) received: BTreeSet<(u32, u16)>,
    /// Packets that the other one was asked for again, each time counted (generic NACK).
    pub(crate) asked: u64,
    /// Packets sent again, in their streams for that (RTX, RFC 4588).
    pub(crate) retransmissions: u64,
}

/// A peer.
pub(crate) struct Peer {
    pub(crate) rtc: Rtc,
    pub(crate) socket: UdpSocket,
    pub(crate) local: SocketAddr,
    pub(crate) assist: Option<RtpAssist>,
    pub(crate) is_connected: bool,
    pub(crate) seen: Seen,
    /// Frames, as they came out.
    pub(crate) frames: Vec<(Instant, MediaData)>,
    origin: Instant,
    timeout: Instant,
    buffer: Vec<u8>,
}

impl Peer {
    /// `is_lite`: it waits to be found, as media servers do (RFC 8445 section 2.5).
    pub(crate) async fn new(is_lite: bool) -> Result<Self, Box<dyn Error>> {
        let now = Instant::now();
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let local = socket.local_addr()?;
        let mut rtc = Rtc::builder().set_ice_lite(is_lite).enable_raw_packets(true).build(now);
        rtc.add_local_candidate(Candidate::host(local, "udp")?);
        Ok(Self {
            rtc,
            socket,
            local,
            assist: None,
            is_connected: false,
            seen: Seen::default(),
            frames: Vec::new(),
            origin: now,
            timeout: now,
            buffer: vec![0; 2048],
        })
    }

    /// The client core's time.
    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// The time at which [`Self::advance`] must be called.
    pub(crate) fn due(&self) -> Instant {
        let assist = self.assist.as_ref().and_then(RtpAssist::next_timeout);
        let assist = assist.map(|at| self.origin + at.saturating_since(Timestamp::ZERO));
        assist.map_or(self.timeout, |assist| assist.min(self.timeout))
    }

    /// The next datagram of the socket, for [`Self::receive`].
    pub(crate) async fn datagram(&mut self) -> std::io::Result<(Vec<u8>, SocketAddr)> {
        let (length, from) = self.socket.recv_from(&mut self.buffer).await?;
        Ok((self.buffer[..length].to_vec(), from))
    }

    /// Passes a datagram to str0m; with assistance through Packrat's client, which consumes control
    /// datagrams and withholds packets above a hole.
    pub(crate) async fn receive(
        &mut self,
        datagram: Vec<u8>,
        from: SocketAddr,
    ) -> Result<(), Box<dyn Error>> {
        let now = self.timestamp();
        match &mut self.assist {
            Some(assist) => assist.on_datagram(&datagram, now),
            None => self.hand_over(&datagram, from).await?,
        }
        self.serve_assist(from).await
    }

    /// Passes on the datagrams of Packrat's client: to str0m, and to the gateway on the one socket.
    async fn serve_assist(&mut self, remote: SocketAddr) -> Result<(), Box<dyn Error>> {
        let now = self.timestamp();
        while let Some(datagram) = self.assist.as_mut().and_then(RtpAssist::poll_deliver) {
            self.hand_over(&datagram, remote).await?;
        }
        while let Some(datagram) = self.assist.as_mut().and_then(|assist| assist.poll_transmit(now))
        {
            self.socket.send_to(&datagram, remote).await?;
        }
        Ok(())
    }

    async fn hand_over(
        &mut self,
        datagram: &[u8],
        source: SocketAddr,
    ) -> Result<(), Box<dyn Error>> {
        let (proto, destination) = (Protocol::Udp, self.local);
        // str0m takes STUN, DTLS, RTP and RTCP only.
        let Ok(contents) = datagram.try_into() else { return Ok(()) };
        self.rtc.handle_input(Input::Receive(
            Instant::now(),
            Receive { proto, source, destination, contents },
        ))?;
        self.drain().await
    }

    /// Runs the timers that are due. `remote`: address of the gateway, if there may be one.
    pub(crate) async fn advance(
        &mut self,
        remote: Option<SocketAddr>,
    ) -> Result<(), Box<dyn Error>> {
        let now = self.timestamp();
        if let (Some(assist), Some(remote)) = (&mut self.assist, remote) {
            assist.handle_timeout(now);
            self.serve_assist(remote).await?;
        }
        if Instant::now() >= self.timeout {
            self.rtc.handle_input(Input::Timeout(Instant::now()))?;
            self.drain().await?;
        }
        Ok(())
    }

    /// Handles str0m's output after each change.
    pub(crate) async fn drain(&mut self) -> Result<(), Box<dyn Error>> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => {
                    self.timeout = at;
                    return Ok(());
                }
                Output::Transmit(transmit) => {
                    self.socket.send_to(&transmit.contents, transmit.destination).await?;
                }
                Output::Event(Event::Connected) => self.is_connected = true,
                Output::Event(Event::MediaData(data)) => self.frames.push((Instant::now(), data)),
                Output::Event(Event::RawPacket(packet)) => self.see(&packet),
                Output::Event(_) => {}
            }
        }
    }

    fn see(&mut self, packet: &RawPacket) {
        match packet {
            RawPacket::RtpTx(header, _) if self.is_retransmission(*header.payload_type) => {
                self.seen.retransmissions += 1;
            }
            RawPacket::RtpTx(header, _) => {
                self.seen.sent.insert((*header.ssrc, header.sequence_number));
            }
            RawPacket::RtpRx(header, _) if !self.is_retransmission(*header.payload_type) => {
                self.seen.received.insert((*header.ssrc, header.sequence_number));
            }
            RawPacket::RtcpTx(Rtcp::Nack(nack)) => {
                let entries = nack.reports.iter();
                self.seen.asked +=
                    entries.map(|entry| 1 + u64::from(entry.blp.count_ones())).sum::<u64>();
            }
            _ => {}
        }
    }

    fn is_retransmission(&self, payload_type: u8) -> bool {
        let mut resent = self.rtc.codec_config().iter().filter_map(|params| params.resend());
        resent.any(|resent| *resent == payload_type)
    }
}
