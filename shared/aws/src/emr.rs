//! EMR, asked whether clusters have ended.

use aws_sdk_emr::{Client, operation::describe_cluster::DescribeClusterError, types::ClusterState};
use tidegate_domain::sweep::Resource;

use crate::error::StoreError;

/// The EMR clusters of an account.
#[derive(Clone, Debug)]
pub struct Clusters {
    client: Client,
}

impl Clusters {
    /// The clusters that this client sees.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// What is known of a cluster. EMR knows none of other accounts, and forgets each two months after its end.
    ///
    /// AWS: [DescribeCluster](https://docs.aws.amazon.com/emr/latest/APIReference/API_DescribeCluster.html),
    /// [cluster states](https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-overview.html).
    pub async fn find(&self, id: &str) -> Result<Resource, StoreError> {
        match self.client.describe_cluster().cluster_id(id).send().await {
            Ok(answer) => {
                let state = answer.cluster.and_then(|cluster| cluster.status?.state);
                Ok(state.map_or(Resource::Unknown, |state| resource(&state)))
            }
            Err(error) => match error.as_service_error() {
                Some(DescribeClusterError::InvalidRequestException(_)) => Ok(Resource::Unknown),
                _ => Err(StoreError::from_sdk("DescribeCluster", error)),
            },
        }
    }
}

/// Whether this can be the id of an EMR cluster, like `j-1YONHTCP3YZKC`.
pub fn is_cluster_id(id: &str) -> bool {
    id.strip_prefix("j-").is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    })
}

fn resource(state: &ClusterState) -> Resource {
    match state {
        ClusterState::Terminated | ClusterState::TerminatedWithErrors => Resource::Ended,
        // A cluster on its way to the end still counts, and so does one in a state that is not known yet.
        _ => Resource::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_clusters_are_asked_for() {
        let check = |id, expect| assert_eq!(is_cluster_id(id), expect, "{id}");
        check("j-1YONHTCP3YZKC", true);
        check("j-", false);
        check("s-1YONHTCP3YZKC", false);
        check("j-1yonhtcp3yzkc", false);
        check("j-1Y ", false);
        check("0f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0", false);
        check("jr_1f2e3d", false);
    }

    #[test]
    fn only_a_final_state_is_an_end() {
        let check = |state: &str, expect| assert_eq!(resource(&ClusterState::from(state)), expect, "{state}");
        check("STARTING", Resource::Running);
        check("WAITING", Resource::Running);
        check("TERMINATING", Resource::Running);
        check("PAUSED", Resource::Running);
        check("TERMINATED", Resource::Ended);
        check("TERMINATED_WITH_ERRORS", Resource::Ended);
    }
}
