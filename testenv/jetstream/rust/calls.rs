//! Makes the calls that JetStream's programs in Rust make, on the queue "jobs", and checks what they get.
//! The last line says which version of the crate did it.

use std::time::{Duration, Instant};
use std::{collections::HashMap, env, str};

use async_nats::jetstream::consumer::{pull, AckPolicy, PullConsumer};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RetentionPolicy, Stream};
use async_nats::jetstream::{AckKind, Context, ContextBuilder, Message};
use async_nats::HeaderMap;
use futures_util::future::join;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use tokio::time::sleep;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Only against hanging.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let options = async_nats::ConnectOptions::new().request_timeout(Some(PATIENCE));
    let nc = options.connect(env::var("NATS_URL")?).await?;
    let js = ContextBuilder::new()
        .timeout(PATIENCE)
        .domain("pq")
        .build(nc.clone());

    let stream = manage(&js).await?;
    take(&js, &stream).await?;
    acknowledge(&js, &stream).await?;

    push(&js, &["n", "o"]).await?;
    let purged = stream.purge().await?;
    assert!(purged.success && purged.purged == 2);
    assert!(stream.delete_consumer("rust").await?.success);
    let err = stream.consumer_info("rust").await.unwrap_err();
    assert_eq!(err.kind(), ConsumerInfoErrorKind::NotFound);
    nc.flush().await?;
    println!("async-nats {}: all calls succeeded", version());
    Ok(())
}

/// What a manager does.
async fn manage(js: &Context) -> Result<Stream, Error> {
    js.query_account().await?; // which counts nothing
    push(js, &["a", "b", "c"]).await?;
    assert_eq!(js.stream_by_subject("pq.jobs.push").await?, "jobs");
    let names: Vec<String> = js.stream_names().try_collect().await?;
    assert_eq!(names, ["jobs"]);
    let infos: Vec<_> = js.streams().try_collect().await?;
    assert_eq!(infos[0].config.subjects, ["pq.jobs.push"]);

    // A program may create its stream, if it asks for what the queue is.
    let stream = js
        .get_or_create_stream(Config {
            name: "jobs".into(),
            subjects: vec!["pq.jobs.push".into()],
            ..Default::default()
        })
        .await?;
    let info = stream.get_info().await?;
    assert_eq!(info.config.retention, RetentionPolicy::WorkQueue);
    assert_eq!(info.state.messages, 3);

    let config = pull::Config {
        durable_name: Some("rust".into()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(60),
        ..Default::default()
    };
    stream
        .get_or_create_consumer("rust", config.clone())
        .await?;
    let updated = pull::Config {
        max_deliver: 5,
        ..config
    };
    stream.update_consumer(updated).await?;
    let info = stream.consumer_info("rust").await?;
    assert_eq!(info.config.max_deliver, 5);
    assert_eq!(info.config.ack_wait, Duration::from_secs(60));
    let mut names: Vec<String> = stream.consumer_names().try_collect().await?;
    names.sort();
    assert_eq!(names, ["max", "min", "rust"]);
    assert_eq!(stream.consumers().try_collect::<Vec<_>>().await?.len(), 3);
    Ok(stream)
}

/// Pulls, in the ways that the crate has, on the queue with "a", "b" and "c".
async fn take(js: &Context, stream: &Stream) -> Result<(), Error> {
    let max: PullConsumer = stream.get_consumer("max").await?;
    let m = one(&max).await?;
    let headers = m.headers.as_ref().expect("headers");
    assert_eq!((text(&m), m.subject.as_str()), ("c", "pq.jobs.push"));
    assert_eq!(headers.get("Pq-Priority").map(|v| v.as_str()), Some("2"));
    let info = m.info()?;
    assert_eq!(
        (info.domain, info.stream, info.consumer),
        (Some("pq"), "jobs", "max")
    );
    assert_eq!((info.delivered, info.pending), (1, 2));
    m.double_ack().await?;

    // fetch takes what is there, and does not wait for more.
    let own: PullConsumer = stream.get_consumer("rust").await?;
    let mut fetched = own.fetch().max_messages(10).messages().await?;
    for want in ["a", "b"] {
        let m = fetched.next().await.expect("a message")?;
        assert_eq!(text(&m), want);
        m.ack().await?;
    }
    assert!(fetched.next().await.is_none());
    empty(stream).await?;
    let mut fetched = own.fetch().max_messages(1).messages().await?;
    assert!(fetched.next().await.is_none());
    let mut batch = own
        .batch()
        .max_messages(1)
        .expires(Duration::from_millis(200))
        .messages()
        .await?;
    assert!(batch.next().await.is_none());

    // sequence is a stream of batches.
    push(js, &["d", "e", "f", "g"]).await?;
    let mut sequence = own.sequence(2)?;
    let mut taken = Vec::new();
    for _ in 0..2 {
        let mut batch = sequence.next().await.expect("a batch")?;
        while let Some(m) = batch.next().await.transpose()? {
            taken.push(text(&m).to_string());
            m.double_ack().await?;
        }
    }
    assert_eq!(taken, ["d", "e", "f", "g"]);
    drop(sequence);

    // One message at a time, the first of them after heartbeats.
    let mut messages = own
        .stream()
        .max_messages_per_batch(1)
        .heartbeat(Duration::from_millis(500))
        .expires(Duration::from_secs(30))
        .messages()
        .await?;
    let later = sleep(Duration::from_millis(1200)).then(|()| push(js, &["h", "i"]));
    let (first, pushed) = join(messages.next(), later).await;
    pushed?;
    let first = first.expect("a message")?;
    assert_eq!(text(&first), "h");
    first.double_ack().await?;
    let second = messages.next().await.expect("a message")?;
    assert_eq!(text(&second), "i");
    second.double_ack().await?;
    drop(messages);
    no_pulls(&own).await?;

    // As most programs do it.
    let mut messages = own.messages().await?;
    for want in ["j", "k", "l"] {
        let (m, pushed) = join(messages.next(), push(js, &[want])).await;
        pushed?;
        let m = m.expect("a message")?;
        assert_eq!(text(&m), want);
        m.ack().await?;
    }
    drop(messages);
    no_pulls(&own).await?;
    empty(stream).await
}

/// The other acknowledgements, and publishing.
async fn acknowledge(js: &Context, stream: &Stream) -> Result<(), Error> {
    let min: PullConsumer = stream.get_consumer("min").await?;
    for duplicate in [false, true] {
        let message = PublishMessage::build()
            .payload("m".into())
            .message_id("once");
        let ack = js.send_publish("pq.jobs.push.7", message).await?.await?;
        assert_eq!((ack.stream.as_str(), ack.duplicate), ("jobs", duplicate));
    }

    one(&min).await?.ack_with(AckKind::Nak(None)).await?;
    let m = one(&min).await?;
    assert_eq!(m.info()?.delivered, 2);
    m.double_ack_with(AckKind::Progress).await?;
    let given = Instant::now();
    m.ack_with(AckKind::Nak(Some(Duration::from_millis(300))))
        .await?;
    let m = one(&min).await?;
    assert_eq!(m.info()?.delivered, 3);
    assert!(
        given.elapsed() >= Duration::from_millis(300),
        "a nak with a delay came back at once"
    );
    m.double_ack_with(AckKind::Term).await?;
    empty(stream).await?;

    let dead = js.get_stream("jobs-dead").await?;
    let m = one(&dead.get_consumer("min").await?).await?;
    assert_eq!(text(&m), "m");
    m.double_ack().await?;

    // A consumer may start with the largest priority.
    let lowest = pull::Config {
        name: Some("lowest".into()),
        ack_policy: AckPolicy::Explicit,
        metadata: HashMap::from([("pq.order".into(), "max".into())]),
        ..Default::default()
    };
    let lowest = stream.create_consumer_strict(lowest).await?;
    push(js, &["n", "o"]).await?;
    for want in ["o", "n"] {
        let m = one(&lowest).await?;
        assert_eq!(text(&m), want);
        m.double_ack().await?;
    }
    assert!(stream.delete_consumer("lowest").await?.success);
    Ok(())
}

/// Puts values into the queue, the first the most urgent.
async fn push(js: &Context, values: &[&'static str]) -> Result<(), Error> {
    for (priority, value) in values.iter().enumerate() {
        let mut headers = HeaderMap::new();
        headers.insert("Pq-Priority", priority.to_string());
        let published = js.publish_with_headers("pq.jobs.push", headers, (*value).into());
        assert_eq!(published.await?.await?.stream, "jobs");
    }
    Ok(())
}

/// Waits for one message.
async fn one(consumer: &PullConsumer) -> Result<Message, Error> {
    let mut batch = consumer
        .batch()
        .max_messages(1)
        .expires(PATIENCE)
        .messages()
        .await?;
    batch.next().await.expect("a message")
}

/// Returns once all is acknowledged. Acknowledgements without an answer take a moment.
async fn empty(stream: &Stream) -> Result<(), Error> {
    let start = Instant::now();
    while stream.get_info().await?.state.messages > 0 {
        assert!(start.elapsed() < PATIENCE, "messages are left");
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Returns once the bridge has noticed that no pull of a consumer has a listener.
async fn no_pulls(consumer: &PullConsumer) -> Result<(), Error> {
    let start = Instant::now();
    while consumer.get_info().await?.num_waiting > 0 {
        assert!(start.elapsed() < PATIENCE, "a pull is left");
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn text(m: &Message) -> &str {
    str::from_utf8(&m.payload).expect("text")
}

/// Of the crate, as Cargo.lock has it.
fn version() -> &'static str {
    let (_, rest) = include_str!("Cargo.lock")
        .split_once("name = \"async-nats\"\nversion = \"")
        .unwrap();
    rest.split('"').next().unwrap()
}
