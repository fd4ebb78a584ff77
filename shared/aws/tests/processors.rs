//! Which events are ends of which resources, and the errors for events that no processor knows. Where rate-limiter-py
//! does the same, a test says so.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]
#![allow(clippy::needless_pass_by_value, reason = "what `json!` makes is passed on")]

use serde_json::{Value, json};
use tidegate_aws::{
    event::BusEvent,
    processors::{Processors, Reading, Unprocessable},
};

fn event(source: &str, detail_type: &str, detail: Value) -> Value {
    json!({"source": source, "detail-type": detail_type, "time": "2026-01-01T00:00:00Z", "detail": detail})
}

/// `expect` is the resource that has ended; `None` if the event is no end.
fn check(processors: &Processors, event: &Value, expect: Option<&str>) {
    let read = BusEvent::from_json(event.clone()).unwrap();
    let ended = match processors.read(&read).unwrap() {
        Reading::Ended { resource, .. } => Some(resource),
        Reading::NotAnEnd { .. } => None,
    };
    assert_eq!(ended, expect, "{event}");
}

fn check_unprocessable(processors: &Processors, event: &Value, expect: &str) {
    let read = BusEvent::from_json(event.clone()).unwrap();
    assert_eq!(processors.read(&read).unwrap_err().to_string(), expect, "{event}");
}

fn replaced(list: &Value) -> Processors {
    Processors::parse(&json!({"replace": true, "processors": list}).to_string()).unwrap()
}

/// In these states, and only in these of all that there are.
#[test]
fn the_ends_of_what_is_built_in() {
    let processors = Processors::built_in().unwrap();
    let check_states = |source, detail_type, id: &str, ends: &[&str], others: &[&str]| {
        for (states, expect) in [(ends, Some("x-1")), (others, None)] {
            for state in states {
                let event = event(source, detail_type, json!({id: "x-1", "state": state, "name": "nightly"}));
                check(&processors, &event, expect);
            }
        }
    };
    check_states(
        "aws.emr",
        "EMR Cluster State Change",
        "clusterId",
        &["TERMINATED", "TERMINATED_WITH_ERRORS"],
        &["STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING", "TERMINATING"],
    );
    check_states(
        "aws.emr",
        "EMR Step Status Change",
        "stepId",
        &["COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED"],
        &["PENDING", "RUNNING", "CANCEL_PENDING"],
    );
    check_states(
        "aws.emr-serverless",
        "EMR Serverless Job Run State Change",
        "jobRunId",
        &["SUCCESS", "FAILED", "CANCELLED"],
        &["SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING", "QUEUED"],
    );
    for detail_type in ["EMR Job Run State Change", "EmrContainers Job Run State Change"] {
        check_states(
            "aws.emr-containers",
            detail_type,
            "id",
            &["COMPLETED", "FAILED", "CANCELLED"],
            &["PENDING", "SUBMITTED", "RUNNING", "CANCEL_PENDING"],
        );
    }
    check_states(
        "aws.glue",
        "Glue Job State Change",
        "jobRunId",
        &["SUCCEEDED", "TIMEOUT", "STOPPED", "ERROR"],
        // Another attempt may follow the last two.
        &["STARTING", "RUNNING", "STOPPING", "WAITING", "FAILED", "EXPIRED"],
    );
    check_states(
        "aws.ec2",
        "EC2 Instance State-change Notification",
        "instance-id",
        &["terminated"],
        &["pending", "running", "stopping", "stopped", "shutting-down"],
    );
    for (state, expect) in [("ALARM", Some("idle")), ("OK", None), ("INSUFFICIENT_DATA", None)] {
        let detail = json!({"alarmName": "idle", "state": {"value": state}});
        check(&processors, &event("aws.cloudwatch", "CloudWatch Alarm State Change", detail), expect);
    }
}

fn glue(job_run: &str, state: &str) -> Value {
    event("aws.glue", "Glue Job State Change", json!({"jobName": "load", "jobRunId": job_run, "state": state}))
}

/// A client knows only the id of the first attempt.
#[test]
fn a_finished_glue_attempt_ends_its_run() {
    let processors = Processors::built_in().unwrap();
    for (job_run, state, expect) in [
        ("jr_1", "FAILED", None),
        ("jr_1_attempt_1", "FAILED", None),
        ("jr_1_attempt_2", "SUCCEEDED", Some("jr_1")),
        ("jr_1_attempt_10", "STOPPED", Some("jr_1")),
        ("jr_1", "SUCCEEDED", Some("jr_1")),
    ] {
        check(&processors, &glue(job_run, state), expect);
    }
    let nameless = r#"processor "glue-job" finds no id at detail.jobRunId: "_attempt_1""#;
    check_unprocessable(&processors, &glue("_attempt_1", "STOPPED"), nameless);
}

#[test]
fn the_last_failed_glue_attempt_ends_it() {
    for (retries, attempt, expect) in [
        (0, "jr_1", Some("jr_1")),
        (0, "jr_1_attempt_1", Some("jr_1")),
        (1, "jr_1", None),
        (1, "jr_1_attempt_1", Some("jr_1")),
        (10, "jr_1_attempt_1", None),
        (10, "jr_1_attempt_10", Some("jr_1")),
    ] {
        let processors = Processors::with_glue_retries(retries).unwrap();
        check(&processors, &glue(attempt, "FAILED"), expect);
        check(&processors, &glue(attempt, "SUCCEEDED"), Some("jr_1"));
        check(&processors, &glue(attempt, "EXPIRED"), None);
    }
    // What an operator declares wins.
    let declared = r#"[{"name": "none", "source": "aws.glue", "detail-type": "Glue Job State Change",
        "id-path": "detail.jobRunId", "pattern": {"detail": {"state": ["STOPPED"]}}}]"#;
    let processors = Processors::with_glue_retries(0).unwrap().overridden_by(declared).unwrap();
    check(&processors, &glue("jr_1", "FAILED"), None);
}

/// As the README of token-sweeper declares it.
#[test]
fn last_attempts_can_be_declared_by_job() {
    let processors = Processors::parse(
        r#"[{"name": "glue-job", "source": "aws.glue", "detail-type": "Glue Job State Change",
            "id-path": "detail.jobRunId", "id-before": "_attempt_",
            "pattern": {"detail": {"$or": [{"state": ["SUCCEEDED", "TIMEOUT", "STOPPED", "ERROR"]},
                {"state": ["FAILED"], "jobName": ["load"], "jobRunId": [{"suffix": "_attempt_2"}]},
                {"state": ["FAILED"], "jobName": [{"anything-but": ["load"]}]}]}}}]"#,
    )
    .unwrap();
    check(&processors, &glue("jr_1", "FAILED"), None);
    check(&processors, &glue("jr_1_attempt_1", "FAILED"), None);
    check(&processors, &glue("jr_1_attempt_2", "FAILED"), Some("jr_1"));
    check(&processors, &glue("jr_1_attempt_1", "SUCCEEDED"), Some("jr_1"));
    let other =
        event("aws.glue", "Glue Job State Change", json!({"jobName": "other", "jobRunId": "jr_1", "state": "FAILED"}));
    check(&processors, &other, Some("jr_1"));
}

#[test]
fn undeclared_detail_types_are_unprocessable() {
    check_unprocessable(
        &Processors::built_in().unwrap(),
        &event("aws.emr", "EMR Instance Group State Change", json!({"clusterId": "j-1"})),
        r#"there is no processor for the source "aws.emr" with the detail-type "EMR Instance Group State Change""#,
    );
}

/// As in rate-limiter-py.
#[test]
fn a_detail_type_wins_over_a_source() {
    let processors = replaced(&json!([
        {"name": "any", "source": "my.jobs", "id-path": "detail.any"},
        {"name": "typed", "source": "my.jobs", "detail-type": "Job Ended", "id-path": "detail.typed",
         "pattern": {"detail": {"state": ["done"]}}},
    ]));
    let detail = |state| json!({"any": "a-1", "typed": "t-1", "state": state});
    check(&processors, &event("my.jobs", "Job Ended", detail("done")), Some("t-1"));
    check(&processors, &event("my.jobs", "jobended", detail("done")), Some("t-1"));
    check(&processors, &event("my.jobs", "JOB  ENDED", detail("done")), Some("t-1"));
    // Nothing falls back to the other.
    check(&processors, &event("my.jobs", "Job Ended", detail("busy")), None);
    check(&processors, &event("my.jobs", "Job-Ended", detail("done")), Some("a-1"));
    check(&processors, &event("my.jobs", "", detail("done")), Some("a-1"));
    check(&processors, &json!({"source": "my.jobs", "detail-type": null, "detail": detail("busy")}), Some("a-1"));
    check_unprocessable(
        &processors,
        &event("My.jobs", "Job Ended", detail("done")),
        r#"there is no processor for the source "My.jobs" with the detail-type "Job Ended""#,
    );
}

/// As in rate-limiter-py.
#[test]
fn an_event_without_pattern_is_an_end() {
    let processors = replaced(&json!([{"name": "any", "source": "my.jobs", "id-path": "id"}]));
    check(&processors, &json!({"source": "my.jobs", "id": "j-1"}), Some("j-1"));
}

/// rate-limiter-py passes over these in silence.
#[test]
fn an_end_without_an_id_is_told() {
    let processors = replaced(&json!([
        {"name": "mine", "source": "my.jobs", "id-path": "detail.job.id", "pattern": {"detail": {"state": ["done"]}}},
    ]));
    let check = |detail: Value, found: &str| {
        let event = event("my.jobs", "Job", detail);
        check_unprocessable(&processors, &event, &format!(r#"processor "mine" finds no id at detail.job.id: {found}"#));
    };
    check(json!({"state": "done"}), "nothing");
    check(json!({"state": "done", "job": "j-1"}), "nothing");
    check(json!({"state": "done", "job": [{"id": "j-1"}]}), "nothing");
    check(json!({"state": "done", "job": {"id": null}}), "null");
    check(json!({"state": "done", "job": {"id": ""}}), r#""""#);
    check(json!({"state": "done", "job": {"id": 0}}), "0");
    check(json!({"state": "done", "job": {"id": {}}}), "{}");
}

/// No id is needed where nothing has ended.
#[test]
fn a_pattern_is_asked_before_the_id() {
    let processors = Processors::built_in().unwrap();
    check(&processors, &event("aws.emr", "EMR Cluster State Change", json!({"state": "RUNNING"})), None);
    check(&processors, &event("aws.emr", "EMR Cluster State Change", json!({})), None);
}

/// The examples of rate-limiter-py's documentation: a predicate, two that must hold, one of two.
#[test]
fn the_clients_predicates_can_be_written() {
    let emr = |pattern: Value| {
        replaced(&json!([{"name": "emr", "source": "aws.emr", "id-path": "detail.clusterId", "pattern": pattern}]))
    };
    let cluster = |state: &str, name: &str| {
        let detail = json!({"clusterId": "j-1YONHTCP3YZKC", "state": state, "name": name});
        event("aws.emr", "EMR Cluster State Change", detail)
    };
    let id = Some("j-1YONHTCP3YZKC");

    let completed = emr(json!({"detail": {"state": ["COMPLETED"]}}));
    check(&completed, &cluster("COMPLETED", "nightly"), id);
    check(&completed, &cluster("RUNNING", "nightly"), None);

    let and =
        emr(json!({"detail": {"state": ["TERMINATED"], "name": [{"anything-but": {"wildcard": "*debugging*"}}]}}));
    check(&and, &cluster("TERMINATED", "nightly"), id);
    check(&and, &cluster("TERMINATED", "for debugging only"), None);
    check(&and, &cluster("RUNNING", "nightly"), None);

    let or = emr(json!({"$or": [{"detail": {"state": ["TERMINATED"]}}, {"detail": {"name": [{"prefix": "tmp-"}]}}]}));
    check(&or, &cluster("TERMINATED", "nightly"), id);
    check(&or, &cluster("RUNNING", "tmp-1"), id);
    check(&or, &cluster("RUNNING", "nightly"), None);
}

#[test]
fn declared_processors_extend_or_replace_built_ins() {
    let alarm = |state: &str| {
        let detail = json!({"alarmName": "busy", "state": {"value": state}});
        event("aws.cloudwatch", "CloudWatch Alarm State Change", detail)
    };
    let cluster = event("aws.emr", "EMR Cluster State Change", json!({"clusterId": "j-1", "state": "TERMINATED"}));
    let list = json!([
        {"name": "quiet", "source": "aws.cloudwatch", "detail-type": "cloudwatchalarmstatechange",
         "id-path": "detail.alarmName", "pattern": {"detail": {"state": {"value": ["OK"]}}}},
        {"name": "mine", "source": "my.jobs", "id-path": "detail.id"},
    ]);
    let mine = event("my.jobs", "Job", json!({"id": "m-1"}));
    for extended in [list.clone(), json!({"processors": list}), json!({"replace": false, "processors": list})] {
        let processors = Processors::parse(&extended.to_string()).unwrap();
        check(&processors, &alarm("OK"), Some("busy"));
        check(&processors, &alarm("ALARM"), None);
        check(&processors, &mine, Some("m-1"));
        check(&processors, &cluster, Some("j-1"));
    }
    let replaced = replaced(&list);
    check(&replaced, &mine, Some("m-1"));
    let cluster = BusEvent::from_json(cluster).unwrap();
    assert!(matches!(replaced.read(&cluster), Err(Unprocessable::Unknown { .. })));
}

#[test]
fn an_error_names_the_processor_and_the_key() {
    let check = |text: &str, expect: &str| {
        let error = Processors::parse(text).unwrap_err();
        assert_eq!(tidegate_aws::error::causes(&error), expect, "{text}");
    };
    let shape = "expected a list of processors, or an object with `processors` and, if need be, `replace`";
    check("7", shape);
    check("{}", shape);
    check(r#"{"processors": {}}"#, shape);
    check(r#"{"processors": [], "replace": "yes"}"#, shape);
    check(r#"{"processors": [], "extend": true}"#, shape);
    check("[7]", "processor number 1, key name: it is required");
    check(r#"[{"name": "a"}]"#, r#"processor "a", key source: it is required"#);
    check(
        r#"[{"name": "a", "source": 7}]"#,
        r#"processor "a", key source: 7 is invalid: expected a string with a character or more"#,
    );
    check(
        r#"[{"name": "a", "source": "b", "idpath": "c"}]"#,
        r#"processor "a", key idpath: expected only name, source, detail-type, id-path, id-before, pattern"#,
    );
    check(
        r#"[{"name": "a", "source": "b", "id-path": "c..d"}]"#,
        r#"processor "a", key id-path: "c..d" is invalid: expected keys with a dot between each"#,
    );
    check(
        r#"[{"name": "a", "source": "b", "id-path": "c", "id-before": ""}]"#,
        r#"processor "a", key id-before: "" is invalid: expected a string with a character or more"#,
    );
    check(
        r#"[{"source": "b", "id-path": "c"}, {"name": "a", "source": "b", "id-path": "c"}]"#,
        "processor number 1, key name: it is required",
    );
    check(
        r#"[{"name": "a", "source": "b", "id-path": "c"}, {"name": "d", "source": "b", "id-path": "c"}]"#,
        r#"processor "d", key source: processor "a" is for the same events"#,
    );
    check(
        r#"[{"name": "a", "source": "b", "detail-type": "C d", "id-path": "e"},
            {"name": "f", "source": "b", "detail-type": "cD", "id-path": "e"}]"#,
        r#"processor "f", key detail-type: processor "a" is for the same events"#,
    );
    check(
        r#"[{"name": "a", "source": "b", "id-path": "c", "pattern": {"detail": {"state": "done"}}}]"#,
        concat!(
            r#"processor "a", key pattern: detail.state: "done" is invalid: "#,
            "expected an object, or a list with a value or more",
        ),
    );
}
