//! The bucket's objects, and their listing.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Bound,
};

use axum::body::Bytes;
use tidegate_domain::time::EpochMillis;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub content: Bytes,
    /// A hash of the content, used as the `ETag`.
    pub tag: String,
    /// When it was written.
    pub modified: EpochMillis,
    pub content_type: Option<String>,
    pub cache_control: Option<String>,
}

impl Object {
    /// An object without headers.
    pub fn new(content: Bytes, modified: EpochMillis) -> Self {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &content).hash(&mut hasher);
            hasher.finish()
        };
        let tag = format!("{:016x}{:016x}", half(0), half(1));
        Self { content, tag, modified, content_type: None, cache_control: None }
    }
}

/// The objects of a bucket, by key.
#[derive(Clone, Debug, Default)]
pub struct Objects(BTreeMap<String, Object>);

/// What is asked of a listing.
#[derive(Clone, Debug)]
pub struct Query {
    /// What the keys begin with.
    pub prefix: String,
    /// What ends a common prefix, if there are to be any.
    pub delimiter: Option<String>,
    /// Where to go on: the token of the page before.
    pub after: Option<String>,
    /// How many entries a page has at most.
    pub limit: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Objects, with their keys.
    pub objects: Vec<(String, Object)>,
    /// What other keys have in common, up to the delimiter.
    pub prefixes: Vec<String>,
    /// The token of the next page, if there is one.
    pub next: Option<String>,
}

/// An entry of a listing, and the token to go on after it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Key(String),
    Prefix(String),
}

impl Objects {
    /// The object of this key.
    pub fn get(&self, key: &str) -> Option<&Object> {
        self.0.get(key)
    }

    /// Puts an object in the place of what was there.
    pub fn insert(&mut self, key: String, object: Object) {
        self.0.insert(key, object);
    }

    /// Takes an object away; whether it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        self.0.remove(key).is_some()
    }

    /// A page of the objects as they are now.
    pub fn list(&self, query: &Query) -> Page {
        let after = query.after.as_deref().and_then(Entry::from_token);
        let from = match &after {
            Some(Entry::Key(key) | Entry::Prefix(key)) => Bound::Excluded(key.as_str()),
            None => Bound::Included(query.prefix.as_str()),
        };
        let (mut page, mut last) = (Page::default(), after.clone());
        for (key, object) in self.0.range::<str, _>((from, Bound::Unbounded)) {
            let Some(rest) = key.strip_prefix(&query.prefix) else { break };
            let entry = entry(&query.prefix, rest, query.delimiter.as_deref());
            if last.as_ref() == Some(&entry) {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == query.limit {
                page.next = last.map(|last| last.token());
                break;
            }
            match &entry {
                Entry::Key(key) => page.objects.push((key.clone(), object.clone())),
                Entry::Prefix(prefix) => page.prefixes.push(prefix.clone()),
            }
            last = Some(entry);
        }
        page
    }
}

fn entry(prefix: &str, rest: &str, delimiter: Option<&str>) -> Entry {
    let common = delimiter.and_then(|delimiter| Some(&rest[..rest.find(delimiter)? + delimiter.len()]));
    match common {
        Some(common) => Entry::Prefix(format!("{prefix}{common}")),
        None => Entry::Key(format!("{prefix}{rest}")),
    }
}

impl Entry {
    fn token(&self) -> String {
        match self {
            Self::Key(key) => format!("k{key}"),
            Self::Prefix(prefix) => format!("p{prefix}"),
        }
    }

    fn from_token(token: &str) -> Option<Self> {
        let key = token.strip_prefix('k').map(|key| Self::Key(key.to_owned()));
        key.or_else(|| Some(Self::Prefix(token.strip_prefix('p')?.to_owned())))
    }
}
