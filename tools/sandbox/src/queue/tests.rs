use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use tidegate_aws::{
    client,
    dead_letters::{self, DeadLetter, DeadLetterQueue},
};

use super::*;
use crate::faults::{FaultRates, FaultyHttp, sdk_config};

async fn queue() -> (EmbeddedQueue, SdkConfig) {
    let queue = EmbeddedQueue::start().await.unwrap();
    let config = sdk_config(queue.endpoint(), FaultyHttp::new(FaultRates::default(), 0));
    (queue, config)
}

async fn send(queue: &EmbeddedQueue, config: &SdkConfig, body: &str) -> Result<String, String> {
    let sent = client::sqs(config).send_message().queue_url(queue.url()).message_body(body).send().await;
    match sent {
        Ok(sent) => Ok(sent.message_id.unwrap()),
        Err(error) => Err(error.code().unwrap().to_owned()),
    }
}

#[tokio::test]
async fn keeps_what_the_dead_letter_queue_parks() {
    let (queue, config) = queue().await;
    let parked = DeadLetterQueue::new(client::sqs(&config), queue.url(), "usage-rollup");
    let letter = DeadLetter { record: r#"{"eventID":"1"}"#, reason: "no keys".to_owned(), snapshot: None };
    parked.park(&letter).await.unwrap();
    let expected = Message {
        body: letter.record.to_owned(),
        attributes: BTreeMap::from(
            [("function", "usage-rollup"), ("reason", "no keys")]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        ),
    };
    assert_eq!(queue.messages(), [expected]);
}

#[tokio::test]
async fn takes_a_mebibyte_and_not_a_byte_more() {
    let (queue, config) = queue().await;
    let longest = "x".repeat(MAX_MESSAGE_BYTES);
    assert!(send(&queue, &config, &longest).await.is_ok());
    assert_eq!(send(&queue, &config, &format!("{longest}x")).await, Err("InvalidParameterValue".to_owned()));
    assert_eq!(queue.messages().len(), 1);

    let parked = DeadLetterQueue::new(client::sqs(&config), queue.url(), "usage-rollup");
    let letter = DeadLetter { record: &longest, reason: "attributes count".to_owned(), snapshot: None };
    assert!(parked.park(&letter).await.is_err());
    assert_eq!(queue.messages().len(), 1);
}

#[tokio::test]
async fn refuses_when_told_to() {
    let (queue, config) = queue().await;
    queue.refuse(true);
    let code = "AWS.SimpleQueueService.NonExistentQueue".to_owned();
    assert_eq!(send(&queue, &config, "first").await, Err(code));
    assert_eq!((queue.refused(), queue.messages().len()), (1, 0));

    let parked = DeadLetterQueue::new(client::sqs(&config), queue.url(), "usage-rollup");
    let letter = DeadLetter { record: "second", reason: "none".to_owned(), snapshot: None };
    assert!(parked.park(&letter).await.is_err());
    assert_eq!((queue.refused(), queue.messages().len()), (2, 0));

    queue.refuse(false);
    assert!(send(&queue, &config, "third").await.is_ok());
    assert_eq!(queue.messages().iter().map(|message| message.body.as_str()).collect::<Vec<_>>(), ["third"]);
}

#[tokio::test]
async fn replaces_characters_as_sqs_does() {
    let (queue, config) = queue().await;
    send(&queue, &config, "a\u{0}b\tc\u{FFFF}d\u{10FFFF}").await.unwrap();
    assert_eq!(queue.messages()[0].body, "a\u{FFFD}b\tc\u{FFFD}d\u{10FFFF}");
}

#[tokio::test]
async fn knows_no_other_queue() {
    let (queue, config) = queue().await;
    let other = client::sqs(&config).send_message().queue_url("http://127.0.0.1:1/000000000000/other");
    let error = other.message_body("lost").send().await.unwrap_err();
    assert_eq!(error.code(), Some("AWS.SimpleQueueService.NonExistentQueue"));
    assert_eq!(queue.messages(), []);
}

#[tokio::test]
async fn a_message_is_hidden_until_given_back() {
    let (queue, config) = queue().await;
    let letters = DeadLetterQueue::new(client::sqs(&config), queue.url(), "usage-rollup");
    let letter = |record| DeadLetter { record, reason: "none".to_owned(), snapshot: Some("PK SK".to_owned()) };
    for record in ["first", "second"] {
        letters.park(&letter(record)).await.unwrap();
    }
    let receive = async || letters.receive(Duration::from_mins(1), Duration::ZERO).await.unwrap();
    let received = receive().await;
    assert_eq!(received.iter().map(|message| message.body.as_str()).collect::<Vec<_>>(), ["first", "second"]);
    let attributes: BTreeMap<_, _> = received[0].attributes.clone().into_iter().collect();
    let expected = [("function", "usage-rollup"), ("reason", "none"), ("snapshot", "PK SK")];
    assert_eq!(attributes, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(receive().await, []);

    let delete = async |message: &dead_letters::Message| letters.delete(vec![message.clone()]).await.remove(0).1;
    delete(&received[0]).await.unwrap();
    letters.make_visible(vec![received[1].clone()]).await.remove(0).1.unwrap();
    let [again] = &receive().await[..] else { panic!("one message") };
    assert_eq!((&again.id, queue.messages().len()), (&received[1].id, 1));
    // It was received anew, so the receipt of the first time no longer deletes it.
    assert!(delete(&received[1]).await.is_err() && queue.messages().len() == 1);
    delete(again).await.unwrap();
    assert_eq!(queue.messages(), []);
}
