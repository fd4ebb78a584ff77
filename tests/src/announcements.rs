//! The client of `capacity-coordinator`, and a function that answers by a script.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aws_sdk_lambda::{
    Client,
    config::{Builder, timeout::TimeoutConfig},
};
use tidegate::{
    ManualClock,
    capacity::{AnnounceBuilder, CapacityKind, Coordinator},
};
use tidegate_sandbox::{
    gate::Gate,
    lambda::{EmbeddedLambda, Fault, FunctionError},
};
use tokio::{
    task::{JoinHandle, yield_now},
    time::timeout_at,
};

use crate::{client::START, prelude::*};

/// What the scenarios of announcements use.
pub mod prelude {
    pub use tidegate::capacity::{
        Announcement, CapacityError, CapacityKind, Coordinator, RefusalReason, StatusCapacity, TargetCapacity,
    };

    pub use tidegate_sandbox::{gate::Gate, lambda::Fault};

    pub use super::{AnnouncementScene, FUNCTION, ID, PROVISIONED, Scripted, ScriptedCoordinator, UNTIL, target, with};
    pub use crate::prelude::*;
}

/// The function's name.
pub const FUNCTION: &str = "capacity-coordinator";
/// The id of announcements, unless a scenario chooses another.
pub const ID: &str = "load-42";
/// When every announcement ends, in seconds since 1970.
pub const UNTIL: u64 = 1_795_348_800;
/// What a table provides that is ready.
pub const PROVISIONED: u64 = 18_000;
/// Invocations are not cut off before.
const ATTEMPT: Duration = Duration::from_mins(1);

/// How the function answers an announcement.
#[derive(Clone, Debug)]
pub enum Scripted {
    Ready,
    /// After so many seconds.
    NotReady(u64),
    /// With this answer. The announcement is in force.
    Answer(Value),
    /// With an error of this type. The announcement is not in force.
    Error(&'static str),
}

/// A function that answers announcements by a script, and then that the capacity is ready. Clones share its state.
#[derive(Clone, Debug, Default)]
pub struct ScriptedCoordinator(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    script: VecDeque<Scripted>,
    /// The answers to other actions.
    others: BTreeMap<&'static str, Value>,
    in_force: BTreeSet<String>,
    /// The runs that have released their announcements.
    released: BTreeSet<String>,
    requests: Vec<Value>,
}

impl ScriptedCoordinator {
    /// The function's next answers to announcements.
    pub fn answers(&self, script: impl IntoIterator<Item = Scripted>) {
        self.lock().script = script.into_iter().collect();
    }

    /// Sets the answer to another action.
    pub fn sets(&self, action: &'static str, answer: Value) {
        self.lock().others.insert(action, answer);
    }

    /// The requests that the function has done since the last call, in order.
    pub fn requests(&self) -> Vec<Value> {
        std::mem::take(&mut self.lock().requests)
    }

    /// The actions of these requests.
    pub fn actions(&self) -> Vec<String> {
        self.requests().iter().map(|request| request["action"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The ids of the announcements in force.
    pub fn in_force(&self) -> Vec<String> {
        self.lock().in_force.iter().cloned().collect()
    }

    fn invoke(&self, request: Value) -> Result<Value, FunctionError> {
        match request["action"].as_str() {
            Some("announce") => self.announce(request),
            Some("release") => Ok(self.release(request)),
            action => {
                let mut state = self.lock();
                let answer = action.and_then(|action| state.others.get(action)).cloned();
                let unknown = || FunctionError::new("MalformedRequest", format!("unknown request {request}"));
                let answer = answer.ok_or_else(unknown);
                state.requests.push(request);
                answer
            }
        }
    }

    fn announce(&self, request: Value) -> Result<Value, FunctionError> {
        let scripted = self.lock().script.pop_front().unwrap_or(Scripted::Ready);
        let answer = match scripted {
            Scripted::Error(error_type) => {
                self.lock().requests.push(request);
                return Err(FunctionError::new(error_type, format!("the message of {error_type}")));
            }
            Scripted::Ready => ready_answer(),
            Scripted::NotReady(seconds) => {
                let answer = json!({"ready": false, "provisioned": 8_000, "until": UNTIL, "targets": [target(8_000)]});
                with(answer, "retry_after_seconds", seconds.into())
            }
            Scripted::Answer(answer) => answer,
        };
        let mut state = self.lock();
        if request["run"].as_str().is_some_and(|run| state.released.contains(run)) {
            state.requests.push(request);
            return Err(FunctionError::new("Released", "the run has released it"));
        }
        let id = request["id"].clone();
        state.in_force.extend(id.as_str().map(str::to_owned));
        state.requests.push(request);
        Ok(if answer.is_object() { with(answer, "id", id) } else { answer })
    }

    fn release(&self, request: Value) -> Value {
        let mut state = self.lock();
        let released = request["id"].as_str().is_some_and(|id| state.in_force.remove(id));
        state.released.extend(request["run"].as_str().map(str::to_owned));
        let answer = json!({"id": request["id"], "released": released});
        state.requests.push(request);
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The function on an embedded Lambda, and its client, whose clock stands still.
#[derive(Debug)]
pub struct AnnouncementScene {
    pub function: ScriptedCoordinator,
    pub lambda: EmbeddedLambda,
    /// The client's connection to Lambda.
    pub http: FaultyHttp,
    pub clock: ManualClock,
    pub coordinator: Coordinator,
}

impl AnnouncementScene {
    pub async fn new() -> anyhow::Result<Self> {
        Self::at(ManualClock::new(START)).await
    }

    /// The same with a clock that others use, too.
    pub async fn at(clock: ManualClock) -> anyhow::Result<Self> {
        let function = ScriptedCoordinator::default();
        let lambda = EmbeddedLambda::start().await?;
        let invoked = function.clone();
        lambda.functions().add(FUNCTION, move |request| ready(invoked.invoke(request)));
        let http = FaultyHttp::undisturbed();
        let coordinator = Coordinator::new(client(&lambda, &http, ATTEMPT), FUNCTION).clock(clock.clone());
        Ok(Self { function, lambda, http, clock, coordinator })
    }

    /// A client whose invocations are cut off after a quarter of a second.
    pub fn impatient(&self) -> Coordinator {
        let client = client(&self.lambda, &self.http, Duration::from_millis(250));
        Coordinator::new(client, FUNCTION).clock(self.clock.clone())
    }

    /// A client of another function.
    pub fn of(&self, function: &str) -> Coordinator {
        Coordinator::new(client(&self.lambda, &self.http, ATTEMPT), function).clock(self.clock.clone())
    }

    /// A request for 4,000 write units of the table `orders`, for ten minutes.
    pub fn announce(&self) -> AnnounceBuilder {
        self.coordinator.announce("orders", CapacityKind::Write, 4_000).id(ID)
    }

    /// Lets the next invocations meet these faults.
    pub fn faults(&self, faults: impl IntoIterator<Item = Fault>) {
        let faults = Mutex::new(faults.into_iter().collect::<VecDeque<_>>());
        self.lambda.functions().on_invoke(move |_| faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front());
    }

    /// Holds the next invocation until the gate is opened. The function runs then, even if its client has gone.
    pub fn held(&self) -> Gate {
        let gate = Gate::closed();
        self.faults([Fault::Held(gate.clone())]);
        gate
    }

    /// Waits until so many callers wait for the clock.
    pub async fn settled(&self, waiting: usize) -> anyhow::Result<()> {
        let settled = async {
            while self.clock.waiting() != waiting {
                yield_now().await;
            }
        };
        let has_settled = timeout_at(in_time(), settled).await;
        has_settled.with_context(|| format!("{} callers wait, not {waiting}", self.clock.waiting()))
    }

    /// Moves the clock on while a task waits for it, until the task has ended.
    pub async fn done<T>(&self, task: JoinHandle<T>) -> anyhow::Result<T> {
        while !task.is_finished() {
            if self.clock.waiting() > 0 {
                self.clock.advance(Duration::from_secs(1));
            }
            yield_now().await;
        }
        Ok(task.await?)
    }

    /// Waits until so many callers wait for the clock, and moves it.
    pub async fn pass(&self, time: Duration, waiting: usize) -> anyhow::Result<()> {
        self.settled(waiting).await?;
        self.clock.advance(time);
        Ok(())
    }
}

fn client(lambda: &EmbeddedLambda, http: &FaultyHttp, attempt: Duration) -> Client {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(attempt).build();
    Client::from_conf(Builder::from(&sdk_config(lambda.endpoint(), http.clone())).timeout_config(timeouts).build())
}

/// The answer that the capacity is ready.
fn ready_answer() -> Value {
    json!({"ready": true, "provisioned": PROVISIONED, "until": UNTIL, "targets": [target(PROVISIONED)]})
}

/// A target that provides so many units.
pub fn target(provisioned: u64) -> Value {
    json!({
        "resource": "table/orders", "mode": "provisioned", "minimum": PROVISIONED, "provisioned": provisioned,
        "needed": PROVISIONED, "maximum": 40_000,
    })
}

/// Adds a key to an object.
pub fn with(mut answer: Value, key: &str, value: Value) -> Value {
    answer[key] = value;
    answer
}
