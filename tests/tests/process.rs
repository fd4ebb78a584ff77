//! What holds for every function's process: it outlives errors and panics, says in JSON what happened, and
//! ends without leaving anything unwritten.
#![cfg(target_os = "linux")]

use serde_json::{Value, json};
use tidegate_sandbox::{
    process::{Binary, Process},
    runtime_api::RuntimeApi,
};

const BINARY: Binary = Binary { name: "scripted", path: env!("CARGO_BIN_EXE_scripted") };

async fn start(variables: &[(&str, &str)]) -> anyhow::Result<Process> {
    BINARY.start(RuntimeApi::start().await?, variables).await
}

/// The event must be answered, and counted, after whatever came before.
async fn check_alive(function: &mut Process) -> anyhow::Result<String> {
    let (answer, body) = function.invoke(&json!({"answer": "well"})).await?;
    assert_eq!(body, "well");
    Ok(answer.request_id)
}

fn errors(log: &[Value]) -> Vec<&Value> {
    log.iter().filter(|line| line["level"] == "ERROR").collect()
}

fn summaries(log: &[Value]) -> Vec<&Value> {
    log.iter().filter(|line| line.get("_aws").is_some()).collect()
}

#[tokio::test]
async fn a_panic_fails_only_its_own_invocation() -> anyhow::Result<()> {
    let mut function = start(&[]).await?;
    let message = function.failure(&json!({"panic": "no such limit"})).await?;
    assert!(message.contains("Lambda panicked: no such limit"), "{message}");
    let request_id = check_alive(&mut function).await?;
    // The same once more: the first panic has left nothing behind.
    function.failure(&json!({"panic": "no such limit"})).await?;
    check_alive(&mut function).await?;

    let log = function.log().await?;
    let errors = errors(&log);
    assert_eq!(errors.len(), 2, "one line a panic: {log:#?}");
    for line in &errors {
        assert_eq!((&line["message"], &line["error"]), (&json!("panicked"), &json!("no such limit")));
        assert!(line["location"].as_str().is_some_and(|location| location.contains("scripted.rs:")), "{line:#}");
    }
    assert_ne!(errors[0]["function_request_id"], request_id);
    assert_eq!(summaries(&log).len(), 2, "{log:#?}");
    Ok(())
}

#[tokio::test]
async fn an_error_is_logged_in_one_line() -> anyhow::Result<()> {
    let mut function = start(&[]).await?;
    let message = function.failure(&json!({"fail": "the table is gone"})).await?;
    assert!(message.contains("ToldTo") && message.contains("the table is gone"), "{message}");
    check_alive(&mut function).await?;
    let log = function.log().await?;
    let [line] = errors(&log)[..] else { panic!("{log:#?}") };
    assert_eq!((&line["error_type"], &line["error"]), (&json!("ToldTo"), &json!("the table is gone")));
    Ok(())
}

#[tokio::test]
async fn log_lines_use_the_names_of_powertools() -> anyhow::Result<()> {
    for (variables, service) in [(&[][..], "scripted"), (&[("POWERTOOLS_SERVICE_NAME", "limits")][..], "limits")] {
        let mut function = start(variables).await?;
        function.failure(&json!({"fail": "cold"})).await?;
        function.failure(&json!({"fail": "warm"})).await?;
        check_alive(&mut function).await?;
        let log = function.log().await?;
        let errors = errors(&log);
        for line in &log {
            assert_eq!(line["service"], service);
            assert_eq!(line["function_name"], "scripted");
            assert!(line["function_arn"].as_str().is_some_and(|arn| arn.starts_with("arn:aws:lambda:")), "{line:#}");
            assert!(line["function_request_id"].as_str().is_some_and(|id| !id.is_empty()), "{line:#}");
            assert!(line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{line:#}");
            assert!(line["xray_trace_id"].as_str().is_some_and(|id| id.starts_with("1-")), "{line:#}");
        }
        let cold_starts: Vec<_> = errors.iter().map(|line| &line["cold_start"]).collect();
        assert_eq!(cold_starts, [true, false], "{log:#?}");
        assert_eq!(errors[0]["function_memory_size"], 256);
        let [summary] = summaries(&log)[..] else { panic!("one summary: {log:#?}") };
        assert_eq!((&summary["cold_start"], &summary["Letters"]), (&json!("false"), &json!(4)));
    }
    Ok(())
}

#[tokio::test]
async fn an_unreadable_event_is_logged_without_its_content() -> anyhow::Result<()> {
    let mut function = start(&[]).await?;
    function.failure(&json!({"sing": "my secret song"})).await?;
    check_alive(&mut function).await?;
    let log = function.log().await?;
    assert!(errors(&log).iter().all(|line| line["function_request_id"].is_string()), "{log:#?}");
    assert!(!errors(&log).is_empty() && !format!("{log:?}").contains("secret"), "{log:#?}");
    Ok(())
}

#[tokio::test]
async fn a_terminated_process_has_written_its_log() -> anyhow::Result<()> {
    let mut function = start(&[]).await?;
    let request_id = check_alive(&mut function).await?;
    let log = function.terminate().await?;
    assert!(matches!(summaries(&log)[..], [line] if line["function_request_id"] == request_id), "{log:#?}");
    Ok(())
}

#[tokio::test]
async fn a_killed_process_has_written_its_log() -> anyhow::Result<()> {
    let mut function = start(&[]).await?;
    let request_id = check_alive(&mut function).await?;
    let log = function.log().await?;
    assert!(matches!(summaries(&log)[..], [line] if line["function_request_id"] == request_id), "{log:#?}");
    Ok(())
}
