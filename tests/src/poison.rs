//! Records that no version of the function can read.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_sandbox::mapping::StreamRecord;

/// The records with poison among them, and the poison: behind every twentieth record its spoilt twin.
pub fn with_poison(records: Vec<StreamRecord>) -> anyhow::Result<(Vec<StreamRecord>, BTreeSet<String>)> {
    let (mut all, mut poison) = (Vec::new(), BTreeSet::new());
    for (at, record) in records.into_iter().enumerate() {
        all.push(record.clone());
        if at % 20 == 19 {
            let mut twin: Value = serde_json::from_str(&record.json)?;
            let sequence = (record.sequence.parse::<u128>()? + 1).to_string();
            twin["dynamodb"]["SequenceNumber"] = json!(sequence);
            twin["dynamodb"]["Keys"]["SK"] = json!({"S": "#STATE"});
            twin["dynamodb"]["Keys"]["PK"] = json!({"S": format!("TQ5vSMvQTm4/BUCKET#twin#api#none-{at}")});
            let json = twin.to_string();
            poison.insert(json.clone());
            all.push(StreamRecord { sequence, json: json.into() });
        }
    }
    Ok((all, poison))
}
