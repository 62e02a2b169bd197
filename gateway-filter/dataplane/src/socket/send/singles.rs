//! One datagram for each of many receivers, with one system call.

use std::os::fd::BorrowedFd;

use socket2::SockAddr;

use super::{Call, Destination, GsoBatch, MAXIMUM_MESSAGES, Sender, send_messages, set_name};

impl Sender {
    /// Sends one datagram to each receiver, in order, until one of them fails; at most as many as
    /// one call takes. Returns the number of sent datagrams. [`Sender::send`] reports the error of
    /// the datagram that follows.
    pub(crate) fn send_singles(
        &mut self,
        socket: BorrowedFd<'_>,
        singles: &[(Destination, GsoBatch<'_>)],
    ) -> usize {
        #[cfg(feature = "virtual-time")]
        if let Some(outlet) = &self.outlet {
            for (destination, datagram) in singles {
                outlet.take(socket, destination.address, &[*datagram]);
            }
            return singles.len();
        }
        let singles = singles.get(..MAXIMUM_MESSAGES).unwrap_or(singles);
        let names: Vec<Option<SockAddr>> =
            singles.iter().map(|(destination, _)| destination.name()).collect();
        let Call { vectors, controls, headers } = &mut self.call;
        vectors.clear();
        singles.iter().for_each(|(_, datagram)| datagram.add_vectors(vectors));
        controls.resize(controls.len().max(singles.len()), super::ControlBuffer::new());
        headers.clear();
        let mut before = 0;
        for (((destination, datagram), name), control) in singles.iter().zip(&names).zip(controls) {
            let end = before + datagram.vectors();
            let of_datagram = vectors.get(before..end).unwrap_or_default();
            before = end;
            let mut message = super::message(destination, *datagram, None, of_datagram, control);
            set_name(&mut message.msg_hdr, name.as_ref());
            headers.push(message);
        }
        // SAFETY: all headers were filled above; names, vectors, data and controls outlive the call.
        unsafe { send_messages(socket, headers, 0) }.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Ecn, Family, bind_reuse_port};
    use super::super::WhenFull;
    use super::*;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn each_gets_its_own_until_one_fails() {
        let sender = bind_reuse_port("127.0.0.1:0".parse().unwrap()).unwrap();
        let receivers: Vec<UdpSocket> =
            (0..5).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut addresses: Vec<SocketAddr> =
            receivers.iter().map(|receiver| receiver.local_addr().unwrap()).collect();
        // No datagram can be sent to port 0.
        addresses.insert(3, ([127, 0, 0, 1], 0).into());
        let datagrams: Vec<Vec<u8>> =
            (0..6_u8).map(|number| vec![number; 100 + usize::from(number)]).collect();
        let numbers = [[9; 8]];
        let singles: Vec<_> = addresses
            .iter()
            .zip(&datagrams)
            .enumerate()
            .map(|(index, (address, datagram))| {
                let destination = Destination {
                    address: Some(*address),
                    source: None,
                    family: Family::V4,
                    leaves_as_v4: true,
                    when_full: WhenFull::Drop,
                };
                let batch = GsoBatch::single(datagram, Ecn::from_traffic_class(index as u8 % 3));
                // Every other one has a number in front.
                let numbers = if index % 2 == 1 { &numbers[..] } else { &[] };
                (destination, GsoBatch { numbers, ..batch })
            })
            .collect();
        let mut sending = Sender::default();
        assert_eq!(sending.send_singles(sender.as_fd(), &singles), 3);
        assert_eq!(sending.send_singles(sender.as_fd(), &singles[3..]), 0);
        assert_eq!(sending.send_singles(sender.as_fd(), &singles[4..]), 2);
        for (index, receiver) in [0, 1, 2, 4, 5].into_iter().zip(&receivers) {
            receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut buffer = [0; 400];
            let length = receiver.recv(&mut buffer).unwrap();
            let number = if index % 2 == 1 { &numbers[0][..] } else { &[] };
            assert_eq!(buffer[..length], [number, &datagrams[index]].concat());
        }
    }
}
