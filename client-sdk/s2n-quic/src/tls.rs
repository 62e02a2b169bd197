//! The TLS provider of the application, with one change: who made the connection may read its
//! packet numbers, and authenticate its packets.
//!
//! Every call goes through to the provider. The keys of the 1-RTT packets are shared on their way
//! to s2n-quic.

use crate::header_protection::{SharedKey, SharedOpener};
use crate::packet_protection::{Proofs, ProvingKey};
use s2n_codec::EncoderValue;
use s2n_quic::provider::tls;
use s2n_quic_core::application::ServerName;
use s2n_quic_core::crypto::CryptoSuite;
use s2n_quic_core::crypto::tls::{
    ApplicationParameters, Bytes, ConnectionInfo, Context, Endpoint, HandshakeType, HelloOffsets,
    NamedGroup, Session, TlsSession,
};
use s2n_quic_core::transport::Error;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// The keys of a connection's 1-RTT packets, for a second owner.
pub(crate) struct ConnectionKeys {
    /// Reads packet numbers.
    pub(crate) opener: SharedOpener,
    /// Authenticates packets.
    pub(crate) proofs: Proofs,
}

/// Keys on their way from TLS to the path that they belong to.
#[derive(Clone, Default)]
pub(crate) struct NewKeys(Arc<Mutex<Vec<ConnectionKeys>>>);

impl std::fmt::Debug for NewKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("NewKeys")
    }
}

impl NewKeys {
    fn publish(&self, keys: ConnectionKeys) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(keys);
    }

    /// Those that came since the last call.
    pub(crate) fn take(&self) -> Vec<ConnectionKeys> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A provider whose connections publish their keys.
#[derive(Debug)]
pub(crate) struct SharingProvider<P> {
    pub(crate) provider: P,
    pub(crate) keys: NewKeys,
}

/// The key that protects the headers of a provider's connections.
pub type KeyOf<P> =
    <<<P as tls::Provider>::Client as Endpoint>::Session as CryptoSuite>::OneRttHeaderKey;

/// The key that protects the packets of a provider's connections.
pub type PacketKeyOf<P> =
    <<<P as tls::Provider>::Client as Endpoint>::Session as CryptoSuite>::OneRttKey;

impl<P: tls::Provider> tls::Provider for SharingProvider<P>
where
    KeyOf<P>: 'static,
    PacketKeyOf<P>: 'static,
{
    type Server = P::Server;
    type Client = SharingEndpoint<P::Client>;
    type Error = P::Error;

    fn start_server(self) -> Result<Self::Server, Self::Error> {
        self.provider.start_server()
    }

    fn start_client(self) -> Result<Self::Client, Self::Error> {
        Ok(SharingEndpoint { endpoint: self.provider.start_client()?, keys: self.keys })
    }
}

/// See [`SharingProvider`].
#[derive(Debug)]
pub(crate) struct SharingEndpoint<E> {
    endpoint: E,
    keys: NewKeys,
}

impl<E: Endpoint> Endpoint for SharingEndpoint<E>
where
    <E::Session as CryptoSuite>::OneRttHeaderKey: 'static,
    <E::Session as CryptoSuite>::OneRttKey: 'static,
{
    type Session = SharingSession<E::Session>;

    fn new_server_session<Params: EncoderValue>(
        &mut self,
        transport_parameters: &Params,
        connection_info: ConnectionInfo,
    ) -> Self::Session {
        let session = self.endpoint.new_server_session(transport_parameters, connection_info);
        SharingSession { session, keys: self.keys.clone() }
    }

    fn new_client_session<Params: EncoderValue>(
        &mut self,
        transport_parameters: &Params,
        server_name: ServerName,
    ) -> Self::Session {
        let session = self.endpoint.new_client_session(transport_parameters, server_name);
        SharingSession { session, keys: self.keys.clone() }
    }

    fn max_tag_length(&self) -> usize {
        self.endpoint.max_tag_length()
    }
}

/// See [`SharingProvider`].
#[derive(Debug)]
pub(crate) struct SharingSession<S> {
    session: S,
    keys: NewKeys,
}

impl<S: Session> CryptoSuite for SharingSession<S>
where
    S::OneRttHeaderKey: 'static,
    S::OneRttKey: 'static,
{
    type HandshakeKey = S::HandshakeKey;
    type HandshakeHeaderKey = S::HandshakeHeaderKey;
    type InitialKey = S::InitialKey;
    type InitialHeaderKey = S::InitialHeaderKey;
    type OneRttKey = ProvingKey<S::OneRttKey>;
    type OneRttHeaderKey = SharedKey<S::OneRttHeaderKey>;
    type ZeroRttKey = S::ZeroRttKey;
    type ZeroRttHeaderKey = S::ZeroRttHeaderKey;
    type RetryKey = S::RetryKey;
}

impl<S: Session> Session for SharingSession<S>
where
    S::OneRttHeaderKey: 'static,
    S::OneRttKey: 'static,
{
    fn poll<C: Context<Self>>(&mut self, context: &mut C) -> Poll<Result<(), Error>> {
        self.session.poll(&mut SharingContext { context, keys: &self.keys })
    }

    fn process_post_handshake_message<C: Context<Self>>(
        &mut self,
        context: &mut C,
    ) -> Result<(), Error> {
        self.session
            .process_post_handshake_message(&mut SharingContext { context, keys: &self.keys })
    }

    fn should_discard_session(&self) -> bool {
        self.session.should_discard_session()
    }

    fn parse_hello(
        kind: HandshakeType,
        header_chunk: &[u8],
        total_received_len: u64,
        max_hello_size: u64,
    ) -> Result<Option<HelloOffsets>, Error> {
        S::parse_hello(kind, header_chunk, total_received_len, max_hello_size)
    }
}

struct SharingContext<'a, C> {
    context: &'a mut C,
    keys: &'a NewKeys,
}

impl<S: Session, C: Context<SharingSession<S>>> Context<S> for SharingContext<'_, C>
where
    S::OneRttHeaderKey: 'static,
    S::OneRttKey: 'static,
{
    fn on_one_rtt_keys(
        &mut self,
        key: S::OneRttKey,
        header_key: S::OneRttHeaderKey,
        application_parameters: ApplicationParameters<'_>,
    ) -> Result<(), Error> {
        let header_key = SharedKey::new(header_key);
        let key = ProvingKey::new(key);
        self.keys.publish(ConnectionKeys { opener: header_key.opener(), proofs: key.proofs() });
        self.context.on_one_rtt_keys(key, header_key, application_parameters)
    }

    fn on_client_application_params(
        &mut self,
        client_params: ApplicationParameters<'_>,
        server_params: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.context.on_client_application_params(client_params, server_params)
    }

    fn on_handshake_keys(
        &mut self,
        key: S::HandshakeKey,
        header_key: S::HandshakeHeaderKey,
    ) -> Result<(), Error> {
        self.context.on_handshake_keys(key, header_key)
    }

    fn on_zero_rtt_keys(
        &mut self,
        key: S::ZeroRttKey,
        header_key: S::ZeroRttHeaderKey,
        application_parameters: ApplicationParameters<'_>,
    ) -> Result<(), Error> {
        self.context.on_zero_rtt_keys(key, header_key, application_parameters)
    }

    fn on_server_name(&mut self, server_name: ServerName) -> Result<(), Error> {
        self.context.on_server_name(server_name)
    }

    fn on_application_protocol(&mut self, application_protocol: Bytes) -> Result<(), Error> {
        self.context.on_application_protocol(application_protocol)
    }

    fn on_key_exchange_group(&mut self, named_group: NamedGroup) -> Result<(), Error> {
        self.context.on_key_exchange_group(named_group)
    }

    fn on_handshake_complete(&mut self) -> Result<(), Error> {
        self.context.on_handshake_complete()
    }

    fn on_tls_context(&mut self, context: Box<dyn Any + Send>) {
        self.context.on_tls_context(context);
    }

    fn on_tls_exporter_ready(&mut self, session: &impl TlsSession) -> Result<(), Error> {
        self.context.on_tls_exporter_ready(session)
    }

    fn on_tls_handshake_failed(
        &mut self,
        session: &impl TlsSession,
        error: Box<dyn std::error::Error + Send + Sync>,
    ) -> Result<(), Error> {
        self.context.on_tls_handshake_failed(session, error)
    }

    fn receive_initial(&mut self, max_len: Option<usize>) -> Option<Bytes> {
        self.context.receive_initial(max_len)
    }

    fn receive_handshake(&mut self, max_len: Option<usize>) -> Option<Bytes> {
        self.context.receive_handshake(max_len)
    }

    fn receive_application(&mut self, max_len: Option<usize>) -> Option<Bytes> {
        self.context.receive_application(max_len)
    }

    fn can_send_initial(&self) -> bool {
        self.context.can_send_initial()
    }

    fn send_initial(&mut self, transmission: Bytes) {
        self.context.send_initial(transmission);
    }

    fn can_send_handshake(&self) -> bool {
        self.context.can_send_handshake()
    }

    fn send_handshake(&mut self, transmission: Bytes) {
        self.context.send_handshake(transmission);
    }

    fn can_send_application(&self) -> bool {
        self.context.can_send_application()
    }

    fn send_application(&mut self, transmission: Bytes) {
        self.context.send_application(transmission);
    }

    fn waker(&self) -> &Waker {
        self.context.waker()
    }
}
