use aws_sdk_s3::{Client, error::ProvideErrorMetadata as _};
use tidegate_aws::client;

use super::*;
use crate::faults::{FaultRates, FaultyHttp, sdk_config};

fn client(s3: &EmbeddedS3) -> Client {
    client::s3(&sdk_config(&s3.endpoint(), FaultyHttp::new(FaultRates::default(), 0)), true)
}

fn at(millis: i64) -> EpochMillis {
    EpochMillis::new(millis).unwrap()
}

/// Keys and common prefixes of each page.
async fn pages(client: &Client, prefix: &str, delimiter: Option<&str>, size: i32) -> Vec<Vec<String>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let list = client.list_objects_v2().bucket(BUCKET).prefix(prefix).max_keys(size);
        let list = list.set_delimiter(delimiter.map(str::to_owned)).set_continuation_token(after);
        let page = list.send().await.unwrap();
        let keys = page.contents().iter().map(|object| object.key().unwrap().to_owned());
        let prefixes = page.common_prefixes().iter().map(|common| common.prefix().unwrap().to_owned());
        pages.push(keys.chain(prefixes).collect());
        after = page.next_continuation_token;
        if after.is_none() {
            return pages;
        }
    }
}

#[tokio::test]
async fn a_listing_has_prefix_delimiter_and_pages() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    for key in ["a/", "a/1", "a/2", "a/b/1", "a/b/2", "a/c/1", "a/d", "b/1"] {
        s3.bucket().put(key, "x", at(0));
    }
    let client = client(&s3);
    let check = async |prefix, delimiter, size, expect: &[&[&str]]| {
        assert_eq!(pages(&client, prefix, delimiter, size).await, expect, "{prefix} {delimiter:?} {size}");
    };
    check("a/", Some("/"), 1_000, &[&["a/", "a/1", "a/2", "a/d", "a/b/", "a/c/"]]).await;
    check("a/", Some("/"), 2, &[&["a/", "a/1"], &["a/2", "a/b/"], &["a/d", "a/c/"]]).await;
    check("a/", Some("/"), 1, &[&["a/"], &["a/1"], &["a/2"], &["a/b/"], &["a/c/"], &["a/d"]]).await;
    check("a/", None, 4, &[&["a/", "a/1", "a/2", "a/b/1"], &["a/b/2", "a/c/1", "a/d"]]).await;
    check("", Some("/"), 5, &[&["a/", "b/"]]).await;
    check("c/", None, 5, &[&[]]).await;
}

#[tokio::test]
async fn an_object_is_read_as_it_was_written() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    let client = client(&s3);
    s3.bucket().set_time(at(1_767_225_600_999));
    let put = client.put_object().bucket(BUCKET).key("a/1").body(b"{}".to_vec().into());
    let put = put.content_type("application/json").cache_control("no-cache").send().await.unwrap();
    let got = client.get_object().bucket(BUCKET).key("a/1").send().await.unwrap();
    assert_eq!((got.e_tag(), got.content_length()), (put.e_tag(), Some(2)));
    assert_eq!((got.content_type(), got.cache_control()), (Some("application/json"), Some("no-cache")));
    assert_eq!(got.last_modified().unwrap().as_secs_f64().to_string(), "1767225600");
    assert_eq!(got.body.collect().await.unwrap().into_bytes(), "{}");
    client.delete_object().bucket(BUCKET).key("a/1").send().await.unwrap();
    let gone = client.get_object().bucket(BUCKET).key("a/1").send().await.unwrap_err();
    assert!(gone.as_service_error().unwrap().is_no_such_key());
}

#[tokio::test]
async fn a_write_is_done_on_its_condition() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    let client = client(&s3);
    let check = async |if_match: Option<&str>, if_none_match: Option<&str>, expect: Result<(), &str>| {
        let put = client.put_object().bucket(BUCKET).key("a").body(b"new".to_vec().into());
        let put = put.set_if_match(if_match.map(str::to_owned));
        let put = put.set_if_none_match(if_none_match.map(str::to_owned)).send().await;
        let put = put.as_ref().map(|_| ()).map_err(|error| error.code().unwrap_or("no code"));
        assert_eq!(put, expect, "{if_match:?} {if_none_match:?}");
    };
    check(Some("\"tag\""), None, Err("NoSuchKey")).await;
    check(None, Some("*"), Ok(())).await;
    check(None, Some("*"), Err("PreconditionFailed")).await;
    check(Some("\"tag\""), None, Err("PreconditionFailed")).await;
    let tag = s3.bucket().get("a").unwrap().tag;
    check(Some(&format!("\"{tag}\"")), None, Ok(())).await;
    check(None, None, Ok(())).await;
}

/// The counts include a client's retries.
#[tokio::test]
async fn calls_are_counted_and_can_be_disturbed() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    let client = client(&s3);
    s3.bucket().put("a", "x", at(0));
    let calls = std::sync::atomic::AtomicUsize::new(0);
    s3.bucket().on_call(move |bucket, call| {
        assert_eq!(call, &Call::Get { key: "a".to_owned() });
        bucket.put("a", "y", at(0));
        let number = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        [Some(Fault::SlowDown), Some(Fault::InternalAfter)].get(number).copied().flatten()
    });
    let got = client.get_object().bucket(BUCKET).key("a").send().await.unwrap();
    assert_eq!(got.body.collect().await.unwrap().into_bytes(), "y");
    assert_eq!(s3.bucket().take_calls(), Calls { lists: 0, gets: 3, puts: 0, deletes: 0 });
    s3.bucket().on_call(|_, _| Some(Fault::AccessDenied));
    let denied = client.get_object().bucket(BUCKET).key("a").send().await.unwrap_err();
    assert_eq!(denied.code(), Some("AccessDenied"));
}
