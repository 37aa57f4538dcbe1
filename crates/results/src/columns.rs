// SPDX-License-Identifier: GPL-2.0-only
//! Results as Parquet: the rows of the CSV file with typed columns, and how they were made in the file's metadata.
use crate::experiment::Results;
use crate::rows::{self, Row};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

const SCHEMA: &str = "message results {
    required binary place (UTF8);
    required binary variant (UTF8);
    required binary arm (UTF8);
    required int64 seed;
    required binary metric (UTF8);
    required binary unit (UTF8);
    required double value;
}";

/// The file's bytes.
///
/// # Errors
/// None that depend on the input; the library's are passed on.
pub fn to_parquet(results: &Results) -> Result<Vec<u8>, ParquetError> {
    let p = &results.provenance;
    let made = [
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
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    let text = |of: &dyn Fn(&Row) -> String| -> Vec<ByteArray> {
        rows.iter()
            .map(|r| ByteArray::from(of(r).into_bytes()))
            .collect()
    };
    // The schema's order.
    column::<ByteArrayType>(&mut group, &text(&|r| r.place.to_string()))?;
    column::<ByteArrayType>(&mut group, &text(&|r| r.variant.clone()))?;
    column::<ByteArrayType>(&mut group, &text(&|r| r.arm.to_string()))?;
    let seeds: Vec<i64> = rows.iter().map(|r| r.seed as i64).collect();
    column::<Int64Type>(&mut group, &seeds)?;
    column::<ByteArrayType>(&mut group, &text(&|r| r.metric.to_string()))?;
    column::<ByteArrayType>(&mut group, &text(&|r| r.unit.to_string()))?;
    let values: Vec<f64> = rows.iter().map(|r| r.value).collect();
    column::<DoubleType>(&mut group, &values)?;
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
