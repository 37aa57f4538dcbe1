// SPDX-License-Identifier: GPL-2.0-only
//! Results as Parquet: the rows of the CSV file with typed columns, and how they were made in the file's metadata.
use crate::experiment::Results;
use crate::rows::{self, Row};
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::sync::Arc;

/// The file's columns: those of the CSV file, seed and value as numbers.
fn schema(varied: &[String]) -> Result<Type, ParquetError> {
    let column = |name: &str| {
        let (kind, converted) = match name {
            "seed" => (Physical::INT64, ConvertedType::NONE),
            "value" => (Physical::DOUBLE, ConvertedType::NONE),
            _ => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        };
        let column = Type::primitive_type_builder(name, kind);
        let column = column.with_repetition(Repetition::REQUIRED);
        column.with_converted_type(converted).build().map(Arc::new)
    };
    let names = rows::COLUMNS
        .iter()
        .copied()
        .chain(varied.iter().map(String::as_str));
    let columns = names.map(column).collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("results")
        .with_fields(columns)
        .build()
}

/// The file's bytes.
///
/// # Errors
/// None that depend on the input; the library's are passed on.
pub fn to_parquet(results: &Results) -> Result<Vec<u8>, ParquetError> {
    let p = &results.provenance;
    let made = [
        ("berth.schema", rows::SCHEMA.to_string()),
        ("berth.command", p.command.clone()),
        ("berth.version", p.version.clone()),
        ("berth.kernel", p.kernel.clone()),
        ("berth.machine", p.machine.clone()),
        ("berth.scenario", p.scenario.clone()),
        ("berth.policies", rows::policies(results)),
        ("berth.complete", results.complete.to_string()),
    ];
    let made = made.map(|(k, v)| KeyValue::new(k.to_string(), v)).to_vec();
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_key_value_metadata(Some(made))
        .build();
    let rows: Vec<Row> = rows::all(results).collect();
    let mut bytes = Vec::new();
    let varied = rows::varied(results);
    let schema = Arc::new(schema(&varied)?);
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    // The schema's order.
    let texts: Vec<_> = rows.iter().map(Row::texts).collect();
    for (i, name) in rows::COLUMNS.iter().enumerate() {
        match *name {
            "seed" => {
                let seeds: Vec<i64> = rows.iter().map(|r| r.seed as i64).collect();
                column::<Int64Type>(&mut group, &seeds)?;
            }
            "value" => {
                let values: Vec<f64> = rows.iter().map(|r| r.value).collect();
                column::<DoubleType>(&mut group, &values)?;
            }
            _ => {
                let cells: Vec<_> = texts.iter().map(|t| ByteArray::from(&*t[i])).collect();
                column::<ByteArrayType>(&mut group, &cells)?;
            }
        }
    }
    for address in &varied {
        let cells: Vec<_> = rows
            .iter()
            .map(|r| ByteArray::from(r.set(address)))
            .collect();
        column::<ByteArrayType>(&mut group, &cells)?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<&mut Vec<u8>>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General(
            "more columns than the schema has".into(),
        ));
    };
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}
