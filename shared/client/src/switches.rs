//! Operators refuse callers, and admit them again.

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::{
    audit::{self, Action},
    fanout::Changed,
};

use crate::{
    administration::{AdminError, Reached},
    limiter::Limiter,
    scope::Scope,
};

impl Limiter {
    /// Refuses all acquires in a scope, which must have an entity or a resource: they fail with
    /// [`AcquireError::Disabled`](crate::AcquireError::Disabled). It takes effect in existing buckets at once.
    ///
    /// The most specific scope that says whether callers are refused decides.
    ///
    /// # Errors
    /// [`AdminError`] if a name is invalid, or the table cannot be written. The same call can be made again.
    pub async fn disable(&self, scope: Scope) -> Result<Reached, AdminError> {
        self.switch(scope, Some(true)).await
    }

    /// Admits acquires in a scope, even if a less specific scope is disabled.
    ///
    /// # Errors
    /// [`AdminError`] if a name is invalid, or the table cannot be written. The same call can be made again.
    pub async fn enable(&self, scope: Scope) -> Result<Reached, AdminError> {
        self.switch(scope, Some(false)).await
    }

    /// Undoes [`disable`](Self::disable) and [`enable`](Self::enable): less specific scopes decide again.
    ///
    /// # Errors
    /// [`AdminError`] if a name is invalid, or the table cannot be written. The same call can be made again.
    pub async fn clear_disabled(&self, scope: Scope) -> Result<Reached, AdminError> {
        self.switch(scope, None).await
    }

    async fn switch(&self, scope: Scope, is_disabled: Option<bool>) -> Result<Reached, AdminError> {
        let checked = scope.checked()?;
        if scope == Scope::system() {
            return Err(AdminError::NotSwitchable);
        }
        let core = &self.core;
        let switched = core.administration.limits.switch(&core.namespace, &checked, is_disabled).await;
        switched?;
        let reached = core.fan_out(&checked, Changed::Switch).await?;
        let details = audit::details([
            ("disabled", is_disabled.map_or(AttributeValue::Null(true), AttributeValue::Bool)),
            ("buckets_stamped", AttributeValue::N(reached.written.to_string())),
        ]);
        core.log(Action::LimitsSet, &checked, details).await?;
        Ok(reached)
    }
}
