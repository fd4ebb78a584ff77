//! Requests and errors in CBOR, as CloudWatch's protocol has them.
//!
//! [Smithy RPC v2 CBOR](https://smithy.io/2.0/additional-specs/protocols/smithy-rpc-v2.html).

use std::convert::Infallible;

use minicbor::{Decoder, Encoder, data::Type, decode, encode};
use serde_json::{Map, Value};

/// Decodes a request. A time is its number of seconds.
pub(super) fn decode_request(body: &[u8]) -> Result<Value, decode::Error> {
    value(&mut Decoder::new(body))
}

/// Encodes the body of an error.
pub(super) fn encode_error(kind: &str, message: &str) -> Result<Vec<u8>, encode::Error<Infallible>> {
    let mut encoder = Encoder::new(Vec::new());
    encoder.map(2)?.str("__type")?.str(kind)?.str("message")?.str(message)?;
    Ok(encoder.into_writer())
}

fn value(decoder: &mut Decoder<'_>) -> Result<Value, decode::Error> {
    Ok(match decoder.datatype()? {
        Type::Bool => decoder.bool()?.into(),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => decoder.u64()?.into(),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => decoder.i64()?.into(),
        Type::F16 | Type::F32 | Type::F64 => decoder.f64()?.into(),
        Type::String | Type::StringIndef => string(decoder)?.into(),
        Type::Array | Type::ArrayIndef => {
            let (mut left, mut list) = (decoder.array()?, Vec::new());
            while has_next(decoder, &mut left)? {
                list.push(value(decoder)?);
            }
            list.into()
        }
        Type::Map | Type::MapIndef => {
            let (mut left, mut map) = (decoder.map()?, Map::new());
            while has_next(decoder, &mut left)? {
                map.insert(string(decoder)?, value(decoder)?);
            }
            map.into()
        }
        Type::Tag => {
            decoder.tag()?;
            value(decoder)?
        }
        other => return Err(decode::Error::type_mismatch(other)),
    })
}

fn string(decoder: &mut Decoder<'_>) -> Result<String, decode::Error> {
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
