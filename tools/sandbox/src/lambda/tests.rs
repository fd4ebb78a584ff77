use aws_sdk_lambda::{
    Client,
    error::ProvideErrorMetadata as _,
    operation::invoke::{InvokeOutput, builders::InvokeFluentBuilder},
    primitives::Blob,
    types::InvocationType,
};
use tokio::sync::mpsc;

use super::*;
use crate::faults::{FaultyHttp, sdk_config};

const NAME: &str = "coordinator";

/// A function that answers with its payload, or with an error if there is a field `error`.
async fn start() -> (EmbeddedLambda, Client) {
    let embedded = EmbeddedLambda::start().await.unwrap();
    embedded.functions().add(NAME, async |payload| {
        let error = payload["error"].as_str().map(|message| FunctionError::new("MalformedRequest", message));
        error.map_or(Ok(payload), Err)
    });
    let client = Client::new(&sdk_config(embedded.endpoint(), FaultyHttp::undisturbed()));
    (embedded, client)
}

fn invoke(client: &Client, payload: &Value) -> InvokeFluentBuilder {
    client.invoke().function_name(NAME).payload(Blob::new(payload.to_string()))
}

fn payload(output: &InvokeOutput) -> Value {
    serde_json::from_slice(output.payload.as_ref().unwrap().as_ref()).unwrap()
}

fn invocation(payload: &Value, is_event: bool) -> Invocation {
    Invocation { function: NAME.to_owned(), payload: payload.clone(), is_event }
}

#[tokio::test]
async fn a_function_answers_its_caller() {
    let (embedded, client) = start().await;
    let call = json!({"action": "list"});
    for name in [NAME, "coordinator:live", "arn:aws:lambda:us-east-1:123456789012:function:coordinator"] {
        let answer = invoke(&client, &call).function_name(name).send().await.unwrap();
        assert_eq!((answer.status_code, payload(&answer), answer.function_error), (200, call.clone(), None), "{name}");
    }
    assert_eq!(embedded.functions().take_invocations(), vec![invocation(&call, false); 3]);
}

#[tokio::test]
async fn an_error_of_the_function_is_no_error_of_lambda() {
    let (_embedded, client) = start().await;
    let answer = invoke(&client, &json!({"error": "units is missing"})).send().await.unwrap();
    assert_eq!((answer.status_code, answer.function_error.as_deref()), (200, Some("Unhandled")));
    let expect = json!({"errorType": "MalformedRequest", "errorMessage": "units is missing"});
    assert_eq!(payload(&answer), expect);
}

#[tokio::test]
async fn an_event_is_accepted_and_runs() {
    let (embedded, client) = start().await;
    let (ran, mut runs) = mpsc::unbounded_channel();
    embedded.functions().add(NAME, move |payload| {
        let ran = ran.clone();
        async move {
            ran.send(payload).unwrap();
            Ok(Value::Null)
        }
    });
    let call = json!({"action": "restore"});
    let answer = invoke(&client, &call).invocation_type(InvocationType::Event).send().await.unwrap();
    assert_eq!(answer.status_code, 202);
    assert_eq!(runs.recv().await, Some(call.clone()));
    assert_eq!(embedded.functions().take_invocations(), [invocation(&call, true)]);
}

#[tokio::test]
async fn what_is_no_function_or_no_json_is_refused() {
    let (embedded, client) = start().await;
    let error = invoke(&client, &json!({})).function_name("other").send().await.unwrap_err().into_service_error();
    assert!(error.is_resource_not_found_exception(), "{error:?}");
    let error = client.invoke().function_name(NAME).payload(Blob::new("{")).send().await.unwrap_err();
    assert_eq!(error.code(), Some("InvalidRequestContentException"));
    assert_eq!(embedded.functions().take_invocations(), []);
}

#[tokio::test]
async fn faults_meet_the_invocations_that_the_hook_picks() {
    let (embedded, client) = start().await;
    let faults = Mutex::new(vec![Fault::LostResponse, Fault::Internal, Fault::Throttled]);
    embedded.functions().on_invoke(move |_| faults.lock().unwrap().pop());
    let call = json!({"action": "list"});
    // The SDK invokes again.
    let answer = invoke(&client, &call).send().await.unwrap();
    assert_eq!(payload(&answer), call);
    assert_eq!(embedded.functions().take_invocations().len(), 4);

    embedded.functions().on_invoke(|_| Some(Fault::AccessDenied));
    let error = invoke(&client, &call).send().await.unwrap_err();
    assert_eq!(error.code(), Some("AccessDeniedException"));
    embedded.functions().undisturbed();
    invoke(&client, &call).send().await.unwrap();
}

#[tokio::test]
async fn a_held_invocation_runs_when_the_gate_opens() {
    let (embedded, client) = start().await;
    let (ran, mut runs) = mpsc::unbounded_channel();
    embedded.functions().add(NAME, move |payload| {
        let ran = ran.clone();
        async move {
            ran.send(payload).unwrap();
            Ok(Value::Null)
        }
    });
    let gate = Gate::closed();
    let held = gate.clone();
    embedded.functions().on_invoke(move |_| Some(Fault::Held(held.clone())));
    // The caller hangs up.
    tokio::select! {
        _ = invoke(&client, &json!(1)).send() => panic!("the invocation is not held"),
        () = gate.holds(1) => {}
    }
    assert!(runs.try_recv().is_err());
    gate.open().await;
    assert_eq!(runs.try_recv(), Ok(json!(1)));
}
