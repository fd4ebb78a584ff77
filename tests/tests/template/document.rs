//! The template's text, as JSON: `!Sub x` becomes `{"Fn::Sub": x}`, the long form of the same.

use std::fs;

use anyhow::{Context as _, anyhow, bail};
use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Map, Value, json};
use tidegate_tests::root;

/// The whole template.
pub fn read() -> anyhow::Result<Value> {
    let text = fs::read_to_string(root().join("template.yaml"))?;
    let documents = Yaml::load_from_str(&text)?;
    json_of(documents.first().context("an empty template")?)
}

fn json_of(yaml: &Yaml<'_>) -> anyhow::Result<Value> {
    Ok(match yaml {
        Yaml::Value(scalar) => scalar_of(scalar),
        Yaml::Sequence(elements) => Value::Array(elements.iter().map(json_of).collect::<anyhow::Result<_>>()?),
        Yaml::Mapping(entries) => {
            let mut object = Map::new();
            for (key, value) in entries {
                let key = key.as_str().ok_or_else(|| anyhow!("{key:?} is no name"))?;
                let before = object.insert(key.to_owned(), json_of(value)?);
                anyhow::ensure!(before.is_none(), "{key} stands twice in one place");
            }
            Value::Object(object)
        }
        Yaml::Tagged(tag, node) => long_form(&tag.suffix, &json_of(node)?),
        Yaml::Representation(..) | Yaml::Alias(_) | Yaml::BadValue => bail!("not what a template may hold: {yaml:?}"),
    })
}

fn scalar_of(scalar: &Scalar<'_>) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(boolean) => json!(boolean),
        Scalar::Integer(integer) => json!(integer),
        Scalar::FloatingPoint(float) => json!(float.into_inner()),
        Scalar::String(text) => json!(text),
    }
}

fn long_form(function: &str, argument: &Value) -> Value {
    match (function, argument) {
        ("Ref" | "Condition", _) => json!({ function: argument }),
        ("GetAtt", Value::String(path)) => {
            let (resource, attribute) = path.split_once('.').unwrap_or((path, ""));
            json!({"Fn::GetAtt": [resource, attribute]})
        }
        _ => json!({ format!("Fn::{function}"): argument }),
    }
}
