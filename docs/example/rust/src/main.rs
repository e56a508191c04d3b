//! A producer and a worker.
//!
//!     cargo run push    pushes three jobs, each of them once, however often it is run
//!     cargo run work    does one job at a time, and waits for more, until Ctrl-C

use std::{env, fmt, time::Duration};

use async_nats::connection::State;
use async_nats::{Client, HeaderMap, Message, Request, RequestErrorKind, StatusCode};
use futures_util::StreamExt;
use serde_json::{json, Value};
use tokio::time::{sleep, timeout};

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = env::var("NATS_URL").unwrap_or("nats://127.0.0.1:4222".into());
    let nc = async_nats::connect(url).await?;
    match env::args().nth(1).as_deref() {
        Some("push") => push(&nc).await,
        Some("work") => work(&nc).await,
        _ => Err("usage: cargo run push|work".into()),
    }
}

async fn push(nc: &Client) -> Result<(), Error> {
    let jobs = [
        (5, "report", "write the report"),
        (1, "fire", "put out the fire"),
        (3, "call", "call back"),
    ];
    let mut pushed = 0;
    for (priority, id, value) in jobs {
        let mut headers = HeaderMap::new();
        headers.insert("Pq-Priority", priority.to_string());
        headers.insert("Nats-Msg-Id", id); // whoever pushes it again gets the reply of the first push
        let reply = request(nc, "pq.jobs.push".into(), value, headers).await?;
        let reply: Value = serde_json::from_slice(&reply.payload)?;
        if reply["duplicate"] != true {
            pushed += 1;
        }
    }
    println!("{pushed} pushed, {} were there before", jobs.len() - pushed);
    Ok(())
}

async fn work(nc: &Client) -> Result<(), Error> {
    let mut interrupt = std::pin::pin!(interrupted());
    loop {
        let leased = tokio::select! {
            leased = lease(nc, "jobs") => leased,
            _ = &mut interrupt => return Ok(()), // a job that arrives just now comes back when its lease is over
        };
        match leased {
            Ok(job) => {
                let mut done = std::pin::pin!(carry_out(nc, &job));
                tokio::select! {
                    _ = &mut done => continue,
                    _ = &mut interrupt => {}
                }
                done.await;
                return Ok(());
            }
            Err(Failure::Refused(404, _)) => {} // nothing came for 30 s
            Err(failure) if failure.is_temporary() => pause(&failure).await,
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// Waits for Ctrl-C, or for the SIGTERM of whatever stops services.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{signal, SignalKind};
        let mut terminate = signal(SignalKind::terminate()).expect("a handler for SIGTERM");
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
}

/// Does a job, and extends its lease meanwhile.
async fn carry_out(nc: &Client, job: &Message) {
    let handled = tokio::select! {
        handled = handle(job) => handled,
        why = extend(nc, job) => {
            eprintln!("given up: {why}"); // somebody else may have it
            return;
        }
    };
    let answer = match handled {
        Ok(()) => "+ACK".to_string(),
        // It comes back, at its old place, as often as max_deliver of the queue allows.
        Err(err) => format!("-NAK {}", json!({ "reason": err.to_string() })),
    };
    if let Err(failure) = settle(nc, job, &answer).await {
        eprintln!("{answer}: {failure}");
    }
}

/// The work itself. It is dropped if the lease is lost.
async fn handle(job: &Message) -> Result<(), Error> {
    let value = String::from_utf8_lossy(&job.payload);
    let delivery = header(job, "Pq-Deliveries").unwrap_or_default();
    println!("{value} (delivery {delivery})");
    if value == "call back" && delivery == "1" {
        return Err("the line is busy".into());
    }
    Ok(())
}

/// Extends a lease until that is refused.
async fn extend(nc: &Client, job: &Message) -> Failure {
    loop {
        sleep(Duration::from_secs(10)).await; // a third of ack_wait
        if let Err(failure) = settle(nc, job, "+WPI").await {
            return failure;
        }
    }
}

/// Waits up to 30 s for a job. Its reply subject is where acknowledgements go.
async fn lease(nc: &Client, queue: &str) -> Result<Message, Failure> {
    // The client keeps what is published while it reconnects. A request that was given up by then must not be sent later.
    if nc.connection_state() != State::Connected {
        return Err(Failure::Away("NATS is away".into()));
    }
    // The bridge notices by heartbeats that a worker is gone, and the worker that the bridge is.
    let options = json!({ "ack_wait": "30s", "expires": "30s", "idle_heartbeat": "5s" });
    let inbox = nc.new_inbox(); // for the replies to this request only
    let mut replies = nc
        .subscribe(inbox.clone())
        .await
        .map_err(|err| Failure::Lost(err.to_string()))?;
    nc.publish_with_reply(
        format!("pq.{queue}.pop.min"),
        inbox,
        options.to_string().into(),
    )
    .await
    .map_err(|err| Failure::Lost(err.to_string()))?;
    loop {
        match timeout(Duration::from_secs(11), replies.next()).await {
            Ok(Some(message)) if header(&message, "Pq-Heartbeat").is_some() => {}
            Ok(Some(message)) => return checked(message),
            Ok(None) => return Err(Failure::Lost("the connection is closed".into())),
            Err(_) => return Err(Failure::Away("no heartbeat".into())),
        }
    }
}

/// Sends an acknowledgement. The answer is 409 if the job is settled, or somebody else has it.
async fn settle(nc: &Client, job: &Message, payload: &str) -> Result<Message, Failure> {
    let subject = job.reply.as_deref().unwrap_or_default().to_string();
    request(nc, subject, payload, HeaderMap::new()).await
}

/// Sends a request until it is answered. Use it for what may be done twice: a push with a message id, and acknowledgements.
async fn request(
    nc: &Client,
    subject: String,
    payload: &str,
    headers: HeaderMap,
) -> Result<Message, Failure> {
    loop {
        let request = Request::new()
            .payload(payload.to_string().into())
            .headers(headers.clone())
            .timeout(Some(Duration::from_secs(10)));
        let answer = match nc.send_request(subject.clone(), request).await {
            Ok(reply) => checked(reply),
            Err(err) => Err(match err.kind() {
                RequestErrorKind::TimedOut | RequestErrorKind::NoResponders => {
                    Failure::Away(err.to_string())
                }
                _ => Failure::Lost(err.to_string()),
            }),
        };
        match answer {
            Err(failure) if failure.is_temporary() => pause(&failure).await,
            answer => return answer,
        }
    }
}

/// Returns a reply, unless it is an error.
fn checked(reply: Message) -> Result<Message, Failure> {
    if let Some(code) = header(&reply, "Nats-Service-Error-Code") {
        let text = header(&reply, "Nats-Service-Error").unwrap_or_default();
        return Err(Failure::Refused(code.parse().unwrap_or(500), text.into()));
    }
    if reply.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(Failure::Away("no bridge is there".into()));
    }
    Ok(reply)
}

fn header<'a>(message: &'a Message, name: &'static str) -> Option<&'a str> {
    Some(message.headers.as_ref()?.get(name)?.as_str())
}

async fn pause(failure: &Failure) {
    eprintln!("trying again: {failure}");
    sleep(Duration::from_secs(1)).await;
}

#[derive(Debug)]
enum Failure {
    Refused(u16, String), // by the bridge
    Away(String),
    Lost(String), // for good
}

impl Failure {
    fn is_temporary(&self) -> bool {
        matches!(self, Failure::Refused(429 | 503, _) | Failure::Away(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Failure::Refused(code, text) => write!(f, "{text} ({code})"),
            Failure::Away(text) | Failure::Lost(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}
