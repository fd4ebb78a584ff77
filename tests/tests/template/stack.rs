//! What `CloudFormation` makes of the template with given parameters: its resources, with loops expanded, `Globals` merged
//! and functions resolved.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, anyhow, bail};
use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Map, Value, json};
use tidegate_tests::root;

/// The template with values for its parameters.
pub struct Stack {
    template: Value,
    parameters: BTreeMap<String, String>,
}

/// What the key of a loop begins with; the loop's name follows.
const FOR_EACH: &str = "Fn::ForEach::";
/// Stands for an attribute that is left out.
const NO_VALUE: &str = "AWS::NoValue";
/// The stack's name.
pub const NAME: &str = "teststack";
/// Makes capacity-coordinator and what belongs to it, for one table.
pub const COORDINATED: (&str, &str) = ("CoordinatedTableArns", "arn:aws:dynamodb:us-east-1:123456789012:table/orders");

impl Stack {
    /// The stack with these parameters, and defaults for the others.
    pub fn new(parameters: &[(&str, &str)]) -> anyhow::Result<Self> {
        let mut template = read_template()?;
        template["Resources"] = expand(&template["Resources"])?;
        let mut values = BTreeMap::new();
        for (name, declared) in object(&template["Parameters"])? {
            values.insert(name.clone(), text(&declared["Default"])?);
        }
        for (name, value) in parameters {
            let known = values.insert((*name).to_owned(), (*value).to_owned());
            known.with_context(|| format!("there is no parameter {name}"))?;
        }
        for (name, value) in [("Region", "us-east-1"), ("AccountId", "123456789012"), ("Partition", "aws")] {
            values.insert(format!("AWS::{name}"), value.to_owned());
        }
        values.insert("AWS::StackName".to_owned(), NAME.to_owned());
        values.insert(NO_VALUE.to_owned(), NO_VALUE.to_owned());
        Ok(Self { template, parameters: values })
    }

    /// The stack with the default of each parameter.
    pub fn by_default() -> anyhow::Result<Self> {
        Self::new(&[])
    }

    /// The template's own text of a section.
    pub fn section(&self, name: &str) -> &Value {
        &self.template[name]
    }

    /// The resources of a type that these parameters make, by logical id, with their properties resolved.
    pub fn resources(&self, kind: &str) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut found = BTreeMap::new();
        for (id, resource) in object(&self.template["Resources"])? {
            if resource["Type"] == kind && self.is_made(resource)? {
                found.insert(id.clone(), self.properties(id)?);
            }
        }
        anyhow::ensure!(!found.is_empty(), "there is no {kind}");
        Ok(found)
    }

    /// The resolved properties of a resource.
    pub fn properties(&self, id: &str) -> anyhow::Result<Value> {
        let resource = &self.template["Resources"][id];
        anyhow::ensure!(self.is_made(resource)?, "{id} is not made");
        let properties = self.resolve(&resource["Properties"])?;
        if resource["Type"] == "AWS::Serverless::Function" {
            return Ok(merge(self.resolve(&self.template["Globals"]["Function"])?, properties));
        }
        Ok(properties)
    }

    /// Every resource that is made, by logical id, with its type.
    pub fn all(&self) -> anyhow::Result<Vec<(&str, &str)>> {
        let mut all = Vec::new();
        for (id, resource) in object(&self.template["Resources"])? {
            if self.is_made(resource)? {
                all.push((id.as_str(), resource["Type"].as_str().context("a type")?));
            }
        }
        Ok(all)
    }

    pub fn outputs(&self) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut outputs = BTreeMap::new();
        for (name, output) in object(&self.template["Outputs"])? {
            if self.is_made(output)? {
                outputs.insert(name.clone(), self.resolve(&output["Value"])?);
            }
        }
        Ok(outputs)
    }

    /// What `CloudFormation` answers to these parameters by the template's rules: the descriptions of failed assertions.
    pub fn refusals(&self) -> anyhow::Result<Vec<String>> {
        let mut refusals = Vec::new();
        for rule in object(&self.template["Rules"])?.values() {
            if !rule["RuleCondition"].is_null() && !self.holds(&rule["RuleCondition"])? {
                continue;
            }
            for assertion in rule["Assertions"].as_array().into_iter().flatten() {
                if !self.holds(&assertion["Assert"])? {
                    refusals.push(text(&assertion["AssertDescription"])?);
                }
            }
        }
        Ok(refusals)
    }

    fn is_made(&self, resource: &Value) -> anyhow::Result<bool> {
        match &resource["Condition"] {
            Value::Null => Ok(true),
            Value::String(condition) => self.condition(condition),
            other => bail!("{other} is no condition"),
        }
    }

    fn condition(&self, name: &str) -> anyhow::Result<bool> {
        let condition = self.template["Conditions"].get(name).with_context(|| format!("no condition {name}"))?;
        self.holds(condition)
    }

    fn holds(&self, condition: &Value) -> anyhow::Result<bool> {
        let (function, argument) = call(condition).with_context(|| format!("{condition} is no condition"))?;
        match function {
            "Condition" => self.condition(argument.as_str().context("a condition's name")?),
            "Fn::Not" => Ok(!self.holds(&argument[0])?),
            "Fn::And" => {
                argument.as_array().into_iter().flatten().try_fold(true, |all, one| Ok(all && self.holds(one)?))
            }
            "Fn::Or" => {
                argument.as_array().into_iter().flatten().try_fold(false, |any, one| Ok(any || self.holds(one)?))
            }
            "Fn::Equals" => Ok(self.resolve(&argument[0])? == self.resolve(&argument[1])?),
            _ => bail!("{function} is not used in conditions"),
        }
    }

    fn resolve(&self, value: &Value) -> anyhow::Result<Value> {
        if let Some((function, argument)) = call(value) {
            return self.apply(function, argument);
        }
        let is_kept = |value: &Value| value != NO_VALUE;
        Ok(match value {
            Value::Array(elements) => {
                let resolved = elements.iter().map(|element| self.resolve(element));
                Value::Array(
                    resolved.filter(|element| element.as_ref().map_or(true, is_kept)).collect::<Result<_, _>>()?,
                )
            }
            Value::Object(entries) => {
                let mut resolved = Map::new();
                for (name, value) in entries {
                    let value = self.resolve(value)?;
                    if is_kept(&value) {
                        resolved.insert(name.clone(), value);
                    }
                }
                Value::Object(resolved)
            }
            other => other.clone(),
        })
    }

    fn apply(&self, function: &str, argument: &Value) -> anyhow::Result<Value> {
        match function {
            "Ref" => self.reference(argument.as_str().context("a reference")?).map(Value::String),
            "Fn::Split" => Ok(text(&self.resolve(&argument[1])?)?.split(&text(&argument[0])?).collect()),
            "Fn::GetAtt" => self.attribute(&text(&argument[0])?, &text(&argument[1])?).map(Value::String),
            "Fn::If" => {
                let branch = if self.condition(&text(&argument[0])?)? { 1 } else { 2 };
                self.resolve(&argument[branch])
            }
            "Fn::Sub" => self.substitute(argument).map(Value::String),
            "Fn::FindInMap" => {
                let mut found = &self.template["Mappings"];
                for key in argument.as_array().context("keys")? {
                    let key = text(&self.resolve(key)?)?;
                    found = found.get(&key).with_context(|| format!("no {key} in {argument}"))?;
                }
                Ok(found.clone())
            }
            _ => bail!("{function} is not used in resources"),
        }
    }

    /// A parameter's value, or a name that stands for the resource.
    fn reference(&self, name: &str) -> anyhow::Result<String> {
        if let Some(value) = self.parameters.get(name) {
            return Ok(value.clone());
        }
        let resource = self.made(name)?;
        let properties = &resource["Properties"];
        for key in ["TableName", "FunctionName", "LogGroupName", "AlarmName", "Name", "DashboardName"] {
            if !properties[key].is_null() {
                return text(&self.resolve(&properties[key])?);
            }
        }
        match resource["Type"].as_str() {
            Some("AWS::SQS::Queue") => {
                Ok(format!("https://sqs.example/123456789012/{}", text(&self.resolve(&properties["QueueName"])?)?))
            }
            _ => Ok(name.to_lowercase()),
        }
    }

    fn attribute(&self, name: &str, attribute: &str) -> anyhow::Result<String> {
        let resource = self.made(name)?;
        match attribute {
            "Arn" if resource["Type"] == "AWS::CloudWatch::Alarm" => {
                let alarm = text(&self.resolve(&resource["Properties"]["AlarmName"])?)?;
                Ok(format!("arn:aws:cloudwatch:us-east-1:123456789012:alarm:{alarm}"))
            }
            "Arn" => Ok(format!("arn:aws:any:us-east-1:123456789012:{name}")),
            "QueueName" => text(&self.resolve(&self.template["Resources"][name]["Properties"]["QueueName"])?),
            "StreamArn" | "Id" => Ok(format!("{name}.{attribute}")),
            _ => bail!("{name} has no attribute {attribute}"),
        }
    }

    fn made(&self, name: &str) -> anyhow::Result<&Value> {
        let resource = self.template["Resources"].get(name).with_context(|| format!("there is no {name}"))?;
        anyhow::ensure!(self.is_made(resource)?, "{name} is referred to, and not made");
        Ok(resource)
    }

    fn substitute(&self, argument: &Value) -> anyhow::Result<String> {
        let (pattern, own) = match argument {
            Value::Array(parts) => (text(&parts[0])?, parts[1].clone()),
            pattern => (text(pattern)?, json!({})),
        };
        let mut rest = pattern.as_str();
        let mut substituted = String::new();
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').with_context(|| format!("no }} behind {after}"))?;
            substituted.push_str(before);
            substituted.push_str(&match (own.get(name), name.split_once('.')) {
                (Some(value), _) => text(&self.resolve(value)?)?,
                (None, Some((resource, attribute))) => self.attribute(resource, attribute)?,
                (None, None) => self.reference(name)?,
            });
            rest = after;
        }
        Ok(substituted + rest)
    }
}

/// The resources, with each loop replaced by what it makes.
fn expand(resources: &Value) -> anyhow::Result<Value> {
    let mut expanded = Map::new();
    for (id, resource) in object(resources)? {
        if !id.starts_with(FOR_EACH) {
            expanded.insert(id.clone(), resource.clone());
            continue;
        }
        let identifier = text(&resource[0])?;
        for item in resource[1].as_array().context("a collection")? {
            let item = text(item)?;
            let plain: String = item.chars().filter(char::is_ascii_alphanumeric).collect();
            for (pattern, fragment) in object(&resource[2])? {
                let id = pattern.replace(&format!("&{{{identifier}}}"), &plain);
                anyhow::ensure!(&id != pattern, "{pattern} does not name {identifier}");
                expanded.insert(id, bind(fragment, &identifier, &item));
            }
        }
    }
    Ok(Value::Object(expanded))
}

/// A loop's fragment with the identifier replaced by an item.
fn bind(fragment: &Value, identifier: &str, item: &str) -> Value {
    match fragment {
        Value::String(text) => json!(text.replace(&format!("${{{identifier}}}"), item)),
        Value::Array(elements) => elements.iter().map(|element| bind(element, identifier, item)).collect(),
        Value::Object(_) if fragment["Ref"] == identifier => json!(item),
        Value::Object(entries) => {
            entries.iter().map(|(name, value)| (name.clone(), bind(value, identifier, item))).collect()
        }
        other => other.clone(),
    }
}

/// What SAM does with `Globals`: objects are merged, and a function's own values win.
fn merge(global: Value, own: Value) -> Value {
    match (global, own) {
        (Value::Object(mut global), Value::Object(own)) => {
            for (name, value) in own {
                let merged = match global.remove(&name) {
                    Some(inherited) => merge(inherited, value),
                    None => value,
                };
                global.insert(name, merged);
            }
            Value::Object(global)
        }
        (_, own) => own,
    }
}

/// A function of `CloudFormation` and its argument; `None` if it is none.
fn call(value: &Value) -> Option<(&str, &Value)> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    let (name, argument) = object.iter().next()?;
    (name == "Ref" || name == "Condition" && argument.is_string() || name.starts_with("Fn::"))
        .then_some((name.as_str(), argument))
}

pub fn object(value: &Value) -> anyhow::Result<&Map<String, Value>> {
    value.as_object().ok_or_else(|| anyhow!("{value} is no object"))
}

/// A text, or a number as `CloudFormation` writes one.
pub fn text(value: &Value) -> anyhow::Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => bail!("{other} is no text"),
    }
}

/// The template as JSON. `!Sub x` becomes `{"Fn::Sub": x}`, its long form.
fn read_template() -> anyhow::Result<Value> {
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
