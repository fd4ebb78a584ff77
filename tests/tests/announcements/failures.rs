//! Invocations that fail.

use std::future::IntoFuture;

use tidegate_tests::announcements::prelude::*;

/// More than any time between two attempts.
const BACKOFF: Duration = Duration::from_secs(20);

#[tokio::test]
async fn each_refusal_has_its_reason_and_message() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    for (error_type, reason) in [
        ("MalformedRequest", RefusalReason::MalformedRequest),
        ("NotCoordinated", RefusalReason::NotCoordinated),
        ("NoScalableTarget", RefusalReason::NoScalableTarget),
        ("NoScalingPolicy", RefusalReason::NoScalingPolicy),
        ("ScaleInDisabled", RefusalReason::ScaleInDisabled),
        ("MaximumTooLow", RefusalReason::MaximumTooLow),
        ("LimitExceeded", RefusalReason::LimitExceeded),
        ("IdTaken", RefusalReason::IdTaken),
        ("Released", RefusalReason::Released),
    ] {
        scene.function.answers([Scripted::Error(error_type)]);
        let CapacityError::Refused(refused) = scene.announce().await.unwrap_err() else {
            anyhow::bail!("{error_type}")
        };
        assert_eq!((refused.reason, refused.error_type.as_str()), (reason, error_type));
        assert_eq!(refused.message, format!("the message of {error_type}"));
        scene.coordinator.flush().await;
        assert_eq!(scene.function.actions(), ["announce"], "nothing is in force, so nothing is released");
    }
    // A table may be deleted while the function waits. An error that this crate does not know may come at any time.
    for (error_type, reason) in [
        ("UnknownTable", RefusalReason::UnknownTable),
        ("UnknownIndex", RefusalReason::UnknownIndex),
        ("Teapot", RefusalReason::Other),
    ] {
        scene.function.answers([Scripted::Error(error_type)]);
        let error = scene.announce().await.unwrap_err();
        assert!(matches!(&error, CapacityError::Refused(refused) if refused.reason == reason), "{error}");
        scene.coordinator.flush().await;
        assert_eq!(scene.function.actions(), ["announce", "release"]);
    }
    Ok(())
}

#[tokio::test]
async fn transient_errors_are_retried() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let passing = ["Busy", "CallFailed", "Sandbox.Timedout", "Runtime.ExitError", ""];
    scene.function.answers(passing.map(Scripted::Error));
    let request = tokio::spawn(scene.announce().into_future());
    for _ in passing {
        scene.pass(BACKOFF, 1).await?;
    }
    let announcement = request.await??;
    assert_eq!(scene.function.actions().len(), passing.len() + 1);
    drop(announcement);
    scene.coordinator.flush().await;
    assert_eq!(scene.function.actions(), ["release"]);
    Ok(())
}

#[tokio::test]
async fn persistent_errors_end_at_the_deadline() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.function.answers(vec![Scripted::Error("Busy"); 99]);
    let request = tokio::spawn(scene.announce().deadline(Duration::from_mins(2)).into_future());
    let error = scene.done(request).await?.unwrap_err();
    assert!(matches!(error, CapacityError::Unavailable { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains(FUNCTION) && message.contains("Busy: the message of Busy"), "{message}");
    // A busy function may have written the announcement.
    scene.coordinator.flush().await;
    assert_eq!(scene.function.actions().last().map(String::as_str), Some("release"));
    Ok(())
}

#[tokio::test]
async fn a_throttled_invocation_has_changed_nothing() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.faults([Fault::Throttled, Fault::Throttled]);
    let request = tokio::spawn(scene.announce().into_future());
    for _ in 0..2 {
        scene.pass(BACKOFF, 1).await?;
    }
    let announcement = request.await??;
    assert_eq!(scene.function.actions(), ["announce"]);
    announcement.keep();

    scene.faults([Fault::Throttled]);
    let error = scene.announce().deadline(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, CapacityError::Unavailable { .. }), "{error}");
    scene.coordinator.flush().await;
    assert_eq!(scene.function.actions(), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.faults([Fault::LostResponse]);
    let request = tokio::spawn(scene.announce().into_future());
    scene.pass(BACKOFF, 1).await?;
    let announcement = request.await??;
    let requests = scene.function.requests();
    assert_eq!(requests.iter().map(|request| request["id"].as_str()).collect::<Vec<_>>(), [Some(ID); 2]);
    announcement.release().await?;
    let releases = scene.function.requests();
    assert_eq!(releases, [json!({"action": "release", "id": ID, "run": requests[0]["run"]})]);
    assert!(requests[0]["run"].is_string() && requests[0]["run"] == requests[1]["run"], "{requests:?}");
    Ok(())
}

/// An invocation that was cut off reaches the function after the release.
#[tokio::test]
async fn a_late_announcement_is_refused() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let (gate, impatient) = (scene.held(), scene.impatient());
    let request = impatient.announce("orders", CapacityKind::Write, 4_000).id(ID);
    let request = tokio::spawn(request.into_future());
    gate.holds(1).await;
    scene.done(request).await??.release().await?;
    assert!(scene.function.in_force().is_empty());
    scene.function.requests();
    // Another run announces and releases the same id.
    scene.announce().await?.release().await?;
    gate.open().await;
    assert_eq!(scene.function.actions(), ["announce", "release", "announce"]);
    assert!(scene.function.in_force().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_hung_invocation_is_cut_off_and_repeated() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let gates = [Gate::closed(), Gate::closed()];
    scene.faults(gates.clone().map(Fault::Held));
    let impatient = scene.impatient();
    let request = tokio::spawn(impatient.announce("orders", CapacityKind::Write, 4_000).id(ID).into_future());
    let announcement = scene.done(request).await??;
    for gate in &gates {
        gate.holds(1).await;
    }
    assert!(announcement.is_ready() && scene.function.in_force() == [ID]);
    announcement.keep();
    Ok(())
}

#[tokio::test]
async fn a_malformed_answer_is_quoted() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let long = "x".repeat(500);
    for (answer, quoted) in [
        (json!({"ready": "yes", "until": UNTIL}), r#""ready\":\"yes\""#.to_owned()),
        (json!(null), "\"null\"".to_owned()),
        (json!([long]), format!("[\\\"{}\"", "x".repeat(198))),
    ] {
        scene.function.answers([Scripted::Answer(answer)]);
        let error = scene.announce().await.unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, CapacityError::Malformed { .. }) && message.contains(&quoted), "{message}");
        // The function may have made the announcement.
        scene.coordinator.flush().await;
        assert_eq!(scene.function.actions(), ["announce", "release"]);
    }
    scene.function.sets("list", json!({"announcements": [{"id": 5}]}));
    let error = scene.coordinator.list().await.unwrap_err().to_string();
    assert!(error.contains(r#"{\"id\":5}"#) && error.contains(FUNCTION), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_missing_function_is_an_operators_error() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let coordinator = scene.of("no-such-function");
    let error = coordinator.announce("orders", CapacityKind::Write, 5).await.unwrap_err();
    assert!(matches!(error, CapacityError::Rejected { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("no-such-function") && message.contains("ResourceNotFoundException"), "{message}");
    assert!(matches!(coordinator.list().await, Err(CapacityError::Rejected { .. })));
    Ok(())
}

/// The release would end the announcement of another caller.
#[tokio::test]
async fn the_announcement_of_another_caller_is_not_released() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.announce().await?.keep();
    scene.function.answers([Scripted::Error("Busy"), Scripted::Error("IdTaken")]);
    let request = tokio::spawn(scene.announce().into_future());
    scene.pass(BACKOFF, 1).await?;
    assert!(matches!(request.await?, Err(CapacityError::Refused(_))));
    scene.coordinator.flush().await;
    assert_eq!(scene.function.in_force(), [ID]);
    Ok(())
}

#[tokio::test]
async fn a_release_is_repeated_for_a_minute() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let announcement = scene.announce().await?;
    scene.faults([Fault::Throttled, Fault::Throttled]);
    let released = tokio::spawn(announcement.release());
    for _ in 0..2 {
        scene.pass(BACKOFF, 1).await?;
    }
    released.await??;
    assert!(scene.function.in_force().is_empty());

    scene.faults(vec![Fault::Throttled; 99]);
    let released = tokio::spawn({
        let coordinator = scene.coordinator.clone();
        async move { coordinator.release(ID).await }
    });
    let begun = scene.clock.epoch_millis();
    let error = scene.done(released).await?.unwrap_err();
    assert!(matches!(error, CapacityError::Unavailable { .. }), "{error}");
    let tried = scene.clock.epoch_millis() - begun;
    assert!((40_000..61_000).contains(&tried), "{tried} ms");
    Ok(())
}
