//! CBOR as CloudWatch's protocol has it, to and from JSON.
//!
//! [Smithy RPC v2 CBOR](https://smithy.io/2.0/additional-specs/protocols/smithy-rpc-v2.html).

use std::convert::Infallible;

use minicbor::{
    Decoder, Encoder,
    data::{IanaTag, Type},
    decode, encode,
};
use serde_json::{Map, Value};

/// Where CloudWatch has its operations.
pub(crate) const CLOUDWATCH: &str = "/service/GraniteServiceVersion20100801/operation/";

/// Decodes one value. A time becomes its number of seconds.
pub(crate) fn to_json(body: &[u8]) -> Result<Value, decode::Error> {
    read(&mut Decoder::new(body))
}

/// Encodes a response of CloudWatch, whose numbers are all of type double. What is in `Timestamps` is a time.
pub(crate) fn from_json(value: &Value) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    // Writing to memory does not fail.
    let _ = write(&mut encoder, value, false);
    encoder.into_writer()
}

fn read(decoder: &mut Decoder<'_>) -> Result<Value, decode::Error> {
    Ok(match decoder.datatype()? {
        Type::Bool => decoder.bool()?.into(),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => decoder.u64()?.into(),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => decoder.i64()?.into(),
        Type::F16 | Type::F32 | Type::F64 => decoder.f64()?.into(),
        Type::String | Type::StringIndef => read_string(decoder)?.into(),
        Type::Array | Type::ArrayIndef => {
            let (mut left, mut list) = (decoder.array()?, Vec::new());
            while has_next(decoder, &mut left)? {
                list.push(read(decoder)?);
            }
            list.into()
        }
        Type::Map | Type::MapIndef => {
            let (mut left, mut map) = (decoder.map()?, Map::new());
            while has_next(decoder, &mut left)? {
                map.insert(read_string(decoder)?, read(decoder)?);
            }
            map.into()
        }
        Type::Tag => {
            decoder.tag()?;
            read(decoder)?
        }
        other => return Err(decode::Error::type_mismatch(other)),
    })
}

fn read_string(decoder: &mut Decoder<'_>) -> Result<String, decode::Error> {
    decoder.str_iter()?.collect()
}

/// Whether a list or map has another element. `left` is `None` if a break ends it.
fn has_next(decoder: &mut Decoder<'_>, left: &mut Option<u64>) -> Result<bool, decode::Error> {
    match left {
        Some(0) => Ok(false),
        Some(left) => {
            *left -= 1;
            Ok(true)
        }
        None if decoder.datatype()? == Type::Break => {
            decoder.skip()?;
            Ok(false)
        }
        None => Ok(true),
    }
}

fn write(encoder: &mut Encoder<Vec<u8>>, value: &Value, is_time: bool) -> Result<(), encode::Error<Infallible>> {
    match value {
        Value::Null => encoder.null()?.ok(),
        Value::Bool(value) => encoder.bool(*value)?.ok(),
        Value::String(value) => encoder.str(value)?.ok(),
        Value::Number(value) => {
            if is_time {
                encoder.tag(IanaTag::Timestamp)?;
            }
            encoder.f64(value.as_f64().unwrap_or_default())?.ok()
        }
        Value::Array(values) => {
            encoder.begin_array()?;
            for value in values {
                write(encoder, value, is_time)?;
            }
            encoder.end()?.ok()
        }
        Value::Object(fields) => {
            encoder.begin_map()?;
            for (name, value) in fields {
                encoder.str(name)?;
                write(encoder, value, name == "Timestamps")?;
            }
            encoder.end()?.ok()
        }
    }
}
