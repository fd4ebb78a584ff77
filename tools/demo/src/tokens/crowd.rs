//! Many callers at once for few tokens: our client, and clients that make the calls of rate-limiter-py.

use std::time::Duration;

use anyhow::Context as _;
use futures::future::{join_all, try_join_all};
use tidegate::{
    TokenTables,
    reservation::{Reservations, ReservationsBuilder, ReserveError},
};
use tidegate_aws::{
    client, clock,
    schema::tokens::{ACCOUNT_ID, RESOURCE_NAME},
    table,
};
use tidegate_domain::sweep::TokenKey;
use tidegate_sandbox::{
    dynamodb::EmbeddedDynamoDb,
    faults::{FaultyHttp, sdk_config},
    gateway::{Conditions, Gateway, Usage},
    item::text,
};

use super::{
    client::{Clients, Limit},
    resources::Kind,
};
use crate::print;

/// Callers that reserve at the same time.
const CALLERS: usize = 50;
/// The limit of the account.
const LIMIT: Limit = Limit { kind: Kind::Cluster, account: "333333333333", tokens: 10 };
/// How long a call takes, so that calls overlap.
const LATENCY_MILLIS: u64 = 5;

/// How many callers of one kind of client were granted a token, and what that consumed.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    pub(crate) client: &'static str,
    pub(crate) is_ours: bool,
    pub(crate) granted: usize,
    pub(crate) limit: usize,
    usage: Usage,
}

/// Lets the callers of each kind of client reserve, each on tables of their own.
pub(crate) async fn run() -> anyhow::Result<Vec<Crowd>> {
    let theirs = Scene::new().await?;
    let mut crowds = vec![theirs.crowd("as rate-limiter-py 0.3.0", false, theirs.reserve_theirs().await?)];
    let counting: fn(ReservationsBuilder) -> ReservationsBuilder = |builder| builder;
    let kinds = [
        ("tidegate, beside Python clients", counting),
        ("tidegate, only Rust clients", ReservationsBuilder::only_rust_clients),
    ];
    for (client, settings) in kinds {
        let ours = Scene::new().await?;
        crowds.push(ours.crowd(client, true, ours.reserve_ours(settings).await?));
    }
    Ok(crowds)
}

pub(crate) fn table(crowds: &[Crowd]) -> String {
    let row = |of: &Crowd| {
        let Crowd { client, granted, limit, usage, .. } = of;
        let over = granted.saturating_sub(*limit);
        let writes = usage.write_units + usage.index_write_units;
        let counts = [granted.to_string(), over.to_string(), usage.total_calls().to_string()];
        let [granted, over, calls] = counts;
        [(*client).to_owned(), granted, over, calls, usage.read_units.to_string(), writes.to_string()]
    };
    let title = format!("{CALLERS} callers at once, in five processes, at a limit of {}", LIMIT.tokens);
    let header = ["", "granted", "over the limit", "calls", "read units", "write units"];
    format!("{title}\n{}", print::table(&header, 1, crowds.iter().map(row)))
}

/// What is wrong: callers of our client must be granted exactly the limit.
pub(crate) fn problems(crowds: &[Crowd]) -> Vec<String> {
    let wrong = |of: &&Crowd| of.is_ours && of.granted != of.limit;
    let problem = |of: &Crowd| format!("{}: {} tokens were granted at a limit of {}", of.client, of.granted, of.limit);
    crowds.iter().filter(wrong).map(problem).collect()
}

/// Tables behind a gateway that counts what the calls consume.
struct Scene {
    gateway: Gateway,
    tables: TokenTables,
    _dynamodb: EmbeddedDynamoDb,
}

impl Scene {
    async fn new() -> anyhow::Result<Self> {
        let dynamodb = EmbeddedDynamoDb::start(None).await?;
        let gateway = Gateway::start(dynamodb.endpoint()).await?;
        let tables = TokenTables::of("crowd");
        let direct = client::dynamodb(&sdk_config(dynamodb.endpoint(), FaultyHttp::undisturbed()));
        table::create_token_tables(&direct, &tables).await.context("the token tables")?;
        gateway.set(Conditions { latency_millis: LATENCY_MILLIS, ..Conditions::default() });
        gateway.take_usage();
        Ok(Self { gateway, tables, _dynamodb: dynamodb })
    }

    fn dynamodb(&self) -> client::DynamoDb {
        client::dynamodb(&sdk_config(&self.gateway.endpoint(), FaultyHttp::undisturbed()))
    }

    fn builder(&self) -> ReservationsBuilder {
        let limit = u32::try_from(LIMIT.tokens).unwrap_or(u32::MAX);
        Reservations::builder(self.dynamodb(), self.tables.clone()).default_limit(LIMIT.kind.name(), limit)
    }

    async fn reserve_ours(&self, settings: fn(ReservationsBuilder) -> ReservationsBuilder) -> anyhow::Result<usize> {
        let processes: Vec<_> = (0..5).map(|_| settings(self.builder()).build()).collect();
        let reserve = |number: usize| processes[number % 5].reserve(LIMIT.kind.name(), LIMIT.account).into_future();
        let mut held = Vec::new();
        for reserved in join_all((0..CALLERS).map(reserve)).await {
            match reserved {
                Ok(reservation) => held.push(reservation),
                Err(ReserveError::Denied(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let granted = held.len();
        for (number, mut reservation) in held.into_iter().enumerate() {
            reservation.bind(Kind::Cluster.id(number), Duration::from_hours(8)).await?;
        }
        Ok(granted)
    }

    async fn reserve_theirs(&self) -> anyhow::Result<usize> {
        let (table, ours) = (self.tables.non_fungible.clone(), self.builder().build());
        let clients = Clients { dynamodb: self.dynamodb(), table, ours };
        let now = clock::now()?.get() / 1000;
        let ids: Vec<_> = (0..CALLERS).map(|number| format!("00000000-0000-4000-9000-{number:012}")).collect();
        let reserve = async |id: &String| {
            // The limit is read for each call.
            let query = clients.dynamodb.query().table_name(&self.tables.limits);
            let query = query.key_condition_expression("#resource = :resource AND #account = :account");
            let query = query
                .expression_attribute_names("#resource", RESOURCE_NAME)
                .expression_attribute_names("#account", ACCOUNT_ID)
                .expression_attribute_values(":resource", text(LIMIT.kind.name()))
                .expression_attribute_values(":account", text(LIMIT.account));
            query.send().await.context("a client could not read its limit")?;
            clients.reserve(&LIMIT, id, now).await
        };
        let granted = try_join_all(ids.iter().map(reserve)).await?;
        let granted: Vec<_> = ids.into_iter().zip(granted).filter(|(_, granted)| *granted).collect();
        for (number, (reservation, _)) in granted.iter().enumerate() {
            let key = TokenKey { coordinate: LIMIT.coordinate(), reservation: reservation.clone() };
            clients.create_token(&key, &Kind::Cluster.id(number), now + 28_800).await?;
        }
        Ok(granted.len())
    }

    fn crowd(&self, client: &'static str, is_ours: bool, granted: usize) -> Crowd {
        Crowd { client, is_ours, granted, limit: LIMIT.tokens, usage: self.gateway.take_usage() }
    }
}
