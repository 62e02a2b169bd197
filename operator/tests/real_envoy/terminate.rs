//! Connections that end at the gateway: a client of HTTP/3, the certificate of a tenant, and servers that
//! speak HTTP/1.1 or HTTP/2.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use packrat_operator::annotations::{Annotations, Carrier};
use packrat_operator::drain::CONNECTIONS_PATH;
use packrat_operator::index::Certificate;
use packrat_operator::model::{Address, ServiceModel, ServicePort, SliceModel};
use packrat_operator::names::SECRET_LABEL;
use packrat_operator::object_key::ObjectKey;
use packrat_operator::resource::TerminatePolicy;
use packrat_operator::xds::file_of;
use packrat_operator::xds::wire::{CLUSTER_TYPE, LISTENER_TYPE};
use packrat_real_envoy::{EVENT_PATIENCE, Envoy, free_port};
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;

use super::envoy::{self, Entry};
use super::operator::Replica;
use super::scene::{OneRoute, Scene, agree, exchange};

/// The name that clients ask for.
const NAME: &str = "shop.example";
/// Address of the clients: Envoy takes 127.0.0.1 for itself.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Bytes of an answer's body, behind its first line.
const LENGTH: usize = 1_000_000;
/// Bytes of an answer, and of a request, that are more than anything on the way keeps.
const LONG: usize = 64 << 20;
/// Paths: an answer, a long one, and no answer, without reading the request.
const FILE: &str = "file";
const LONG_FILE: &str = "long";
const SINK: &str = "sink";

/// A certificate, and its key.
struct Pair {
    certificate: CertificateDer<'static>,
    entries: BTreeMap<String, Vec<u8>>,
}

impl Pair {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
        let entries = [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())]
            .map(|(name, text)| (name.to_owned(), text.into_bytes()));
        Self { certificate: made.cert.der().clone(), entries: entries.into() }
    }

    /// Puts it into the Secret that the Service names.
    fn publish(&self, replica: &Replica) {
        let labels = BTreeMap::from([(SECRET_LABEL.to_owned(), "true".to_owned())]);
        let read = Certificate::read(&labels, &self.entries);
        replica.snapshots.update(|index| {
            index.set_certificate(ObjectKey::new("app", "web-tls"), Ok(read.unwrap()))
        });
    }
}

/// Fields of requests that no client may get to a server.
const DOUBTFUL_FIELDS: [&str; 4] =
    ["forwarded", "x-real-ip", "x_forwarded_for", "x-envoy-upstream-rq-timeout-ms"];
/// Such fields that have got to a server.
static FORGED: AtomicUsize = AtomicUsize::new(0);
/// Bytes of long answers that have been asked for.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The body of a long answer.
struct LongBody {
    left: usize,
}

impl Body for LongBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const PART: &[u8] = &[7; 16 << 10];
        let left = &mut self.get_mut().left;
        *left = left.saturating_sub(PART.len());
        TAKEN.fetch_add(PART.len(), Ordering::Relaxed);
        Poll::Ready((*left > 0).then(|| Ok(Frame::data(Bytes::from_static(PART)))))
    }
}

/// A server that writes in the first line of each answer its name, the protocol of the request to
/// it, the client's address, and the protocol of the client's request.
fn server(name: &'static str) -> u16 {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            tell.send(listener.local_addr().unwrap().port()).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let answer = service_fn(move |request: Request<Incoming>| async move {
                    let field = |field: &str| {
                        let value = request.headers().get(field).map(|value| value.to_str());
                        value.and_then(Result::ok).unwrap_or("-").to_owned()
                    };
                    let fields = request.headers().keys().map(|name| name.as_str().to_owned());
                    let doubtful = fields.filter(|name| DOUBTFUL_FIELDS.contains(&name.as_str()));
                    FORGED.fetch_add(doubtful.count(), Ordering::Relaxed);
                    let line = format!(
                        "{name} {:?} {} {}\n",
                        request.version(),
                        field("x-forwarded-for"),
                        field("x-forwarded-proto")
                    );
                    let path = request.uri().path().trim_start_matches('/').to_owned();
                    if path == SINK {
                        return std::future::pending().await;
                    }
                    // The end of a request may come later; to answer before resets the connection.
                    let _ = request.into_body().collect().await;
                    let body = match path.as_str() {
                        LONG_FILE => Either::Left(LongBody { left: LONG }),
                        _ => {
                            let body = [line.as_bytes(), &[7; LENGTH]].concat();
                            Either::Right(Full::new(Bytes::from(body)))
                        }
                    };
                    Ok::<_, Infallible>(Response::new(body))
                });
                tokio::spawn(async move {
                    let builder =
                        hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
    });
    told.recv().unwrap()
}

/// The Service of a server, whose connections end at the gateway.
fn serve(replica: &Replica, port: u16, server: u16, speaks: &str, annotations: &[(&str, &str)]) {
    let ask = [
        ("packrat.dev/assist", "enabled"),
        ("packrat.dev/mode", "terminate"),
        ("packrat.dev/certificate", "web-tls"),
    ];
    let named = |port| vec![ServicePort { name: "http".to_owned(), port }];
    let service = ServiceModel {
        uid: "web".to_owned(),
        annotations: Annotations::read(
            Carrier::Service,
            ask.into_iter().chain(annotations.iter().copied()),
        ),
        tcp_ports: named(port),
        application_protocols: [(port, speaks.to_owned())].into(),
        ..ServiceModel::default()
    };
    let address = Address { ip: Ipv4Addr::LOCALHOST.into(), pod: None, ready: true, serving: true };
    let slice = SliceModel {
        service: "web".to_owned(),
        tcp_ports: named(server),
        addresses: vec![address],
        ..SliceModel::default()
    };
    replica.snapshots.update(|index| {
        index.services.set(ObjectKey::new("app", "web"), Some(service));
        index.set_slice(ObjectKey::new("app", "web-1"), Some(slice))
    });
}

fn allow(replica: &Replica) {
    replica.gateway(|model| model.spec.terminate = TerminatePolicy::Allowed);
}

/// An Envoy that serves the scene's route with this certificate.
fn begin(scene: &Scene, pair: &Pair) -> Envoy {
    pair.publish(&scene.replica);
    scene.replica.complete();
    let envoy = scene.envoy();
    agree(&envoy, &scene.replica, 2);
    envoy
}

/// A connection of HTTP/3.
struct Http3 {
    runtime: Runtime,
    connection: quinn::Connection,
    requests: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    _endpoint: quinn::Endpoint,
}

impl Http3 {
    fn try_connect(port: u16, trusted: &[&Pair]) -> Option<Self> {
        let mut roots = rustls::RootCertStore::empty();
        for pair in trusted {
            roots.add(pair.certificate.clone()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(tls));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let made = runtime.block_on(async {
            let endpoint = quinn::Endpoint::client((CLIENT, 0).into()).unwrap();
            let gateway = SocketAddr::from(([127, 0, 0, 1], port));
            let connecting = endpoint.connect_with(config, gateway, NAME).unwrap();
            let connection =
                tokio::time::timeout(Duration::from_secs(5), connecting).await.ok()?.ok()?;
            let quic = h3_quinn::Connection::new(connection.clone());
            let (mut driver, requests) = h3::client::new(quic).await.ok()?;
            tokio::spawn(async move {
                std::future::poll_fn(|context| driver.poll_close(context)).await;
            });
            Some((connection, requests, endpoint))
        });
        let (connection, requests, endpoint) = made?;
        Some(Self { runtime, connection, requests, _endpoint: endpoint })
    }

    /// Tried again, as a listener may just be coming or changing.
    fn connect(envoy: &Envoy, port: u16, trusted: &[&Pair]) -> Self {
        let mut found = None;
        envoy.wait_until("a connection of HTTP/3", |_| {
            found = Self::try_connect(port, trusted);
            found.is_some()
        });
        found.unwrap()
    }

    /// The certificate of the other end.
    fn certificate(&self) -> CertificateDer<'static> {
        let identity = self.connection.peer_identity().unwrap();
        identity.downcast::<Vec<CertificateDer<'static>>>().unwrap().remove(0)
    }

    /// Asks for a long answer, which is not read as long as the result is there.
    fn ask_and_take_nothing(&mut self) -> impl Sized + use<> {
        let request = Request::get(format!("https://{NAME}/{LONG_FILE}")).body(()).unwrap();
        let requests = &mut self.requests;
        self.runtime.block_on(async {
            let mut stream = requests.send_request(request).await.unwrap();
            stream.finish().await.unwrap();
            assert_eq!(stream.recv_response().await.unwrap().status(), 200);
            stream
        })
    }

    /// The first line of the answer to a request; `None` if there is no whole answer.
    fn get(&mut self) -> Option<String> {
        let request = Request::get(format!("https://{NAME}/{FILE}")).body(()).unwrap();
        let requests = &mut self.requests;
        let answer = async {
            let mut stream = requests.send_request(request).await.ok()?;
            stream.finish().await.ok()?;
            let response = stream.recv_response().await.ok()?;
            let mut body = Vec::new();
            while let Some(mut chunk) = stream.recv_data().await.ok()? {
                body.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining()));
            }
            (response.status() == 200).then_some(body)
        };
        let body = self.runtime.block_on(async {
            tokio::time::timeout(EVENT_PATIENCE, answer).await.ok().flatten()
        })?;
        let end = body.iter().position(|byte| *byte == b'\n')?;
        assert_eq!(body.len() - end - 1, LENGTH);
        Some(String::from_utf8(body[..end].to_vec()).unwrap())
    }
}

/// The answer over TCP: its fields, and the first line of its body.
fn over_tcp(envoy: &Envoy, port: u16, pair: &Pair, options: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, &pair.entries["tls.crt"]).unwrap();
    let mut text = String::new();
    envoy.wait_until("an answer over TCP", |_| {
        let output = Command::new("curl")
            .args(["--silent", "--include", "--max-time", "20"])
            .args(["--interface", &CLIENT.to_string(), "--cacert"])
            .arg(&authority)
            .args(["--connect-to", &format!("{NAME}:443:127.0.0.1:{port}")])
            .args(options)
            .arg(format!("https://{NAME}/{FILE}"))
            .output()
            .unwrap_or_else(|error| panic!("this test needs curl, which does not start: {error}"));
        text = String::from_utf8(output.stdout).unwrap();
        output.status.success()
    });
    let (fields, body) = text.split_once("\r\n\r\n").unwrap();
    (fields.to_owned(), body.lines().next().unwrap().to_owned())
}

/// All that a browser needs, with a server that has neither TLS nor HTTP/3: both protocols at one
/// port, a way from one to the other, and the server knows the client of a request.
#[test]
fn http3_ends_at_the_gateway_with_the_certificate_of_the_tenant() {
    let Some(scene) = Scene::begin() else { return };
    let (port, pair, replica) = (free_port(), Pair::new(), &scene.replica);
    serve(replica, port, server("first"), "http", &[]);
    pair.publish(replica);
    replica.complete();
    let envoy = scene.envoy();
    // The gateway does not let it.
    agree(&envoy, replica, 0);
    allow(replica);
    agree(&envoy, replica, 2);
    let mut client = Http3::connect(&envoy, port, &[&pair]);
    assert_eq!(client.get().unwrap(), "first HTTP/1.1 127.0.0.2 https");
    assert_eq!(client.certificate(), pair.certificate);

    let (fields, line) = over_tcp(&envoy, port, &pair, &["--http2"]);
    assert!(fields.starts_with("HTTP/2 200"), "{fields}");
    assert!(fields.contains(&format!("alt-svc: h3=\":{port}\"; ma=86400")), "{fields}");
    assert_eq!(line, "first HTTP/1.1 127.0.0.2 https");
    let (fields, _) = over_tcp(&envoy, port, &pair, &["--http1.1"]);
    assert!(fields.starts_with("HTTP/1.1 200"), "{fields}");
    // A client's claims about its address get nowhere.
    let claims = ["x-forwarded-for", "forwarded", "x-real-ip", "x_forwarded_for"];
    let claims = claims.map(|name| format!("{name}: 192.0.2.1"));
    let mut claims: Vec<&str> = claims.iter().flat_map(|claim| ["-H", claim.as_str()]).collect();
    claims.extend(["-H", "x-envoy-upstream-rq-timeout-ms: 1"]);
    let (_, line) = over_tcp(&envoy, port, &pair, &claims);
    assert_eq!(line, "first HTTP/1.1 127.0.0.2 https");
    assert_eq!(FORGED.load(Ordering::Relaxed), 0);

    // A Pod that ends waits for connections, and no longer than for them.
    let count = |envoy: &Envoy| {
        let stats = envoy.get(CONNECTIONS_PATH);
        stats.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).sum::<u32>()
    };
    envoy.wait_until("one connection", |envoy| count(envoy) == 1);

    // Its servers change, and speak HTTP/2; the connection lasts.
    serve(replica, port, server("second"), "kubernetes.io/h2c", &[]);
    envoy.wait_until("the second server", |_| {
        client.get().as_deref() == Some("second HTTP/2.0 127.0.0.2 https")
    });

    // Another certificate is for new connections; present ones are not disturbed.
    let next = Pair::new();
    next.publish(replica);
    let both = [&pair, &next];
    let mut newer = None;
    envoy.wait_until("the next certificate", |_| {
        newer = Http3::try_connect(port, &both);
        newer.as_ref().is_some_and(|found| found.certificate() == next.certificate)
    });
    assert!(newer.unwrap().get().unwrap().starts_with("second"));
    assert!(client.get().unwrap().starts_with("second"));

    // TCP is the Service's to refuse.
    serve(replica, port, server("third"), "http", &[("packrat.dev/tcp", "off")]);
    envoy.wait_until("UDP alone", |_| std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    let mut newer = Http3::connect(&envoy, port, &[&next]);
    envoy.wait_until("the third server", |_| {
        newer.get().is_some_and(|line| line.starts_with("third"))
    });
    drop((client, newer));
    envoy.wait_until("no connection", |envoy| count(envoy) == 0);
}

/// Neither case takes the listener away: an operator that begins anew and has not read the Secret
/// yet, and a Secret that is gone.
#[test]
fn a_listener_outlives_its_operator_and_its_secret() {
    let Some(scene) = Scene::begin() else { return };
    let (port, pair, target) = (free_port(), Pair::new(), server("web"));
    let replica = &scene.replica;
    allow(replica);
    serve(replica, port, target, "http", &[]);
    let envoy = begin(&scene, &pair);
    let mut client = Http3::connect(&envoy, port, &[&pair]);
    assert!(client.get().is_some());
    let mut last = None;
    envoy.wait_until("all resources", |_| {
        let resources = replica.resources();
        last = Some((file_of(&resources, LISTENER_TYPE), file_of(&resources, CLUSTER_TYPE)));
        resources.len() == 3
    });

    let scene = scene.restart(|| assert!(client.get().is_some()));
    let replica = &scene.replica;
    allow(replica);
    serve(replica, port, target, "http", &[]);
    replica.complete();
    envoy.wait_until("Envoy to connect again", |_| replica.connected() == 1);
    envoy.wait_until("the cluster", |_| replica.resources().len() == 1);
    assert!(client.get().is_some());
    assert_eq!(envoy::listeners(&envoy).len(), 2);
    pair.publish(replica);
    agree(&envoy, replica, 2);
    replica.snapshots.update(|index| {
        index.set_certificate(ObjectKey::new("app", "web-tls"), Err("does not exist".to_owned()))
    });
    let mut another = Http3::connect(&envoy, port, &[&pair]);
    assert!(another.get().is_some() && client.get().is_some());
    assert_eq!(replica.resources().len(), 3);

    // A gateway that starts without an operator also has the certificate.
    drop(envoy);
    let away = TcpSocket::new_v4().unwrap();
    away.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (listeners, clusters) = last.unwrap();
    let operator = away.local_addr().unwrap();
    let envoy = scene.envoy_by(&Entry { operator, last: listeners, clusters: Some(clusters) });
    assert!(Http3::connect(&envoy, port, &[&pair]).get().is_some());
}

/// A route that goes lets the downloads that are there end.
#[test]
fn connections_of_a_route_that_goes_have_time_to_end() {
    let Some(scene) = Scene::begin() else { return };
    let (port, pair, replica) = (free_port(), Pair::new(), &scene.replica);
    allow(replica);
    serve(replica, port, server("web"), "http", &[]);
    let envoy = begin(&scene, &pair);
    let mut client = Http3::connect(&envoy, port, &[&pair]);
    assert!(client.get().is_some());
    replica.snapshots.update(|index| index.services.set(ObjectKey::new("app", "web"), None));
    agree(&envoy, replica, 0);
    assert!(Http3::try_connect(port, &[&pair]).is_none(), "no one new comes in");
    assert!(client.get().is_some());
}

/// No flood of connections takes the memory of the others.
#[test]
fn connections_that_end_at_a_gateway_are_limited() {
    let Some(scene) = Scene::begin() else { return };
    let (port, pair, replica) = (free_port(), Pair::new(), &scene.replica);
    replica.gateway(|model| {
        model.spec.terminate = TerminatePolicy::Allowed;
        model.spec.sessions.maximum = 4;
    });
    serve(replica, port, server("web"), "http", &[]);
    let envoy = begin(&scene, &pair);
    let mut held: Vec<Http3> = (0..4).map(|_| Http3::connect(&envoy, port, &[&pair])).collect();
    assert!(held.iter_mut().all(|client| client.get().is_some()));
    let above = Http3::try_connect(port, &[&pair]);
    assert!(above.is_none_or(|mut client| client.get().is_none()), "one too many");
    held.pop();
    envoy.wait_until("the place that has become free", |_| {
        Http3::try_connect(port, &[&pair]).is_some_and(|mut client| client.get().is_some())
    });
}

/// One port, first with assistance, then as the end of connections, and back.
#[test]
fn a_port_changes_its_mode() {
    let Some(OneRoute { scene, envoy, server: udp, port, client, .. }) = OneRoute::begin(&[])
    else {
        return;
    };
    let (pair, replica) = (Pair::new(), &scene.replica);
    allow(replica);
    agree(&envoy, replica, 1);
    pair.publish(replica);
    serve(replica, port, server("web"), "http", &[]);
    assert!(Http3::connect(&envoy, port, &[&pair]).get().is_some());
    agree(&envoy, replica, 2);
    replica.service("web", port, &[udp.local_addr().unwrap()], &[]);
    agree(&envoy, replica, 1);
    exchange(&client, &udp);
}

/// Gateways have one connection to a server for many clients, and memory for all of them.
#[test]
fn clients_that_take_nothing_keep_no_answer_from_others() {
    let Some(scene) = Scene::begin() else { return };
    let (port, pair, replica) = (free_port(), Pair::new(), &scene.replica);
    allow(replica);
    serve(replica, port, server("web"), "kubernetes.io/h2c", &[]);
    let envoy = begin(&scene, &pair);
    // Some for each of Envoy's threads.
    let mut idle: Vec<Http3> = (0..8).map(|_| Http3::connect(&envoy, port, &[&pair])).collect();
    let held: Vec<_> = idle.iter_mut().map(Http3::ask_and_take_nothing).collect();
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..8 {
        let mut client = Http3::connect(&envoy, port, &[&pair]);
        let answer = client.get();
        assert_eq!(answer.as_deref(), Some("web HTTP/2.0 127.0.0.2 https"));
    }
    let taken = TAKEN.load(Ordering::Relaxed);
    println!("{taken} bytes of long answers have left the server");
    // Most of that is in buffers of the system, and of the server.
    assert!(taken < LONG / 2, "{taken}");
    drop(held);
}

/// The rest of a request that its server does not take stays with the client.
#[test]
fn a_request_takes_little_of_a_gateways_memory() {
    let Some(scene) = Scene::begin() else { return };
    let (port, pair, replica) = (free_port(), Pair::new(), &scene.replica);
    allow(replica);
    serve(replica, port, server("web"), "http", &[]);
    let envoy = begin(&scene, &pair);
    over_tcp(&envoy, port, &pair, &["--http2"]);
    let folder = tempfile::tempdir().unwrap();
    let [authority, file] = ["authority.pem", "file"].map(|name| folder.path().join(name));
    std::fs::write(&authority, &pair.entries["tls.crt"]).unwrap();
    std::fs::File::create(&file).unwrap().set_len(LONG as u64).unwrap();
    let upload = |seconds: &str| {
        let output = Command::new("curl")
            .args(["--silent", "--http2", "--max-time", seconds, "--write-out", "%{size_upload}"])
            .args(["--connect-to", &format!("{NAME}:443:127.0.0.1:{port}"), "--cacert"])
            .arg(&authority)
            .arg("--upload-file")
            .arg(&file)
            .arg(format!("https://{NAME}/{SINK}"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(28), "it has no answer");
        String::from_utf8(output.stdout).unwrap().parse::<usize>().unwrap()
    };
    // On a busy machine it takes a while until the request has begun.
    let sent = ["5", "20", "60"].into_iter().map(upload).find(|sent| *sent > 0).unwrap();
    println!("{sent} bytes have left the client");
    // Most of that is in buffers of the system.
    assert!(sent < LONG / 4, "{sent}");
}
