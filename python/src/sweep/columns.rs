// SPDX-License-Identifier: GPL-2.0-only
//! Columns of a table, for Arrow and as a Parquet file.
use crate::results::{maybe, text};
use arrow_array::{ArrayRef, Int64Array, StringArray};
use bytes::Bytes;
use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

fn wrong(why: &str) -> ParquetError {
    ParquetError::General(why.into())
}

/// Values of a column; each may be missing.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    Whole(Vec<Option<i64>>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
}

/// A column and its name.
pub type Named = (String, Column);

/// What a column's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Whole,
    Number,
    Text,
}

/// A column that is made when it is wanted.
pub struct Lazy<'a> {
    pub name: String,
    pub kind: Kind,
    pub make: Box<dyn Fn() -> Column + 'a>,
}

impl Column {
    pub fn words<S: AsRef<str>>(values: impl Iterator<Item = S>) -> Column {
        Column::Text(values.map(|v| Some(v.as_ref().to_string())).collect())
    }

    pub fn counts(values: impl Iterator<Item = i64>) -> Column {
        Column::Whole(values.map(Some).collect())
    }

    pub fn arrow(&self) -> ArrayRef {
        match self {
            Column::Whole(values) => Arc::new(Int64Array::from(values.clone())),
            Column::Number(values) => maybe(values.iter().copied()),
            Column::Text(values) if values.iter().all(Option::is_some) => {
                text(values.iter().flatten())
            }
            Column::Text(values) => Arc::new(StringArray::from_iter(values)),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Column::Whole(_) => Kind::Whole,
            Column::Number(_) => Kind::Number,
            Column::Text(_) => Kind::Text,
        }
    }

    fn extend(&mut self, other: Column) -> Result<()> {
        match (self, other) {
            (Column::Whole(a), Column::Whole(b)) => a.extend(b),
            (Column::Number(a), Column::Number(b)) => a.extend(b),
            (Column::Text(a), Column::Text(b)) => a.extend(b),
            _ => return Err(wrong("a column is of two kinds")),
        }
        Ok(())
    }
}

fn schema(name: &str, kind: Kind) -> Result<Type> {
    let (physical, converted) = match kind {
        Kind::Whole => (Physical::INT64, ConvertedType::NONE),
        Kind::Number => (Physical::DOUBLE, ConvertedType::NONE),
        Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_converted_type(converted)
        .build()
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<&mut Vec<u8>>,
    values: &[Option<T::T>],
) -> Result<()> {
    let Some(mut column) = group.next_column()? else {
        return Err(wrong("more columns than the schema has"));
    };
    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let there: Vec<T::T> = values.iter().flatten().cloned().collect();
    column
        .typed::<T>()
        .write_batch(&there, Some(&levels), None)?;
    column.close()
}

/// The file's bytes. One column at a time is made: a large sweep has them in memory once already.
///
/// # Errors
/// None that depend on the input; the library's are passed on.
pub fn write(columns: &[Lazy<'_>], metadata: Vec<(&str, String)>) -> Result<Vec<u8>> {
    let metadata = metadata.into_iter();
    let metadata = metadata.map(|(k, v)| KeyValue::new(k.to_string(), v));
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(metadata.collect()))
        .build();
    let fields: Result<Vec<_>> = columns
        .iter()
        .map(|column| Ok(Arc::new(schema(&column.name, column.kind)?)))
        .collect();
    let schema = Type::group_type_builder("runs")
        .with_fields(fields?)
        .build()?;
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in columns {
        match (column.make)() {
            Column::Whole(values) => put::<Int64Type>(&mut group, &values)?,
            Column::Number(values) => put::<DoubleType>(&mut group, &values)?,
            Column::Text(values) => {
                let bytes = |text: &Option<String>| {
                    let text = text.as_ref()?;
                    Some(ByteArray::from(text.as_bytes().to_vec()))
                };
                put::<ByteArrayType>(&mut group, &values.iter().map(bytes).collect::<Vec<_>>())?;
            }
        }
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

/// Values where the levels say that there is one; a column without levels has all.
fn spread<T>(levels: &[i16], values: Vec<T>) -> Vec<Option<T>> {
    if levels.is_empty() {
        return values.into_iter().map(Some).collect();
    }
    let mut values = values.into_iter();
    let spread = levels
        .iter()
        .map(|l| if *l > 0 { values.next() } else { None });
    spread.collect()
}

fn column(reader: ColumnReader, rows: usize) -> Result<Column> {
    let mut levels = Vec::new();
    match reader {
        ColumnReader::Int64ColumnReader(mut reader) => {
            let mut values = Vec::new();
            reader.read_records(rows, Some(&mut levels), None, &mut values)?;
            Ok(Column::Whole(spread(&levels, values)))
        }
        ColumnReader::DoubleColumnReader(mut reader) => {
            let mut values = Vec::new();
            reader.read_records(rows, Some(&mut levels), None, &mut values)?;
            Ok(Column::Number(spread(&levels, values)))
        }
        ColumnReader::ByteArrayColumnReader(mut reader) => {
            let mut values = Vec::new();
            reader.read_records(rows, Some(&mut levels), None, &mut values)?;
            let texts: Result<Vec<String>> = values
                .iter()
                .map(|bytes| Ok(bytes.as_utf8()?.to_string()))
                .collect();
            Ok(Column::Text(spread(&levels, texts?)))
        }
        _ => Err(wrong("a column is neither text nor number")),
    }
}

/// A file's columns, and what its metadata says for `key`.
///
/// # Errors
/// It is no Parquet file, or has columns of other kinds.
pub fn read(bytes: Bytes, key: &str) -> Result<(Vec<Named>, Option<String>)> {
    // The library panics at some files that are broken.
    let read = std::panic::catch_unwind(AssertUnwindSafe(|| read_whole(bytes, key)));
    read.unwrap_or_else(|_| Err(wrong("the file is broken")))
}

fn read_whole(bytes: Bytes, key: &str) -> Result<(Vec<Named>, Option<String>)> {
    let reader = SerializedFileReader::new(bytes)?;
    let file = reader.metadata().file_metadata();
    let mut metadata = file.key_value_metadata().into_iter().flatten();
    let value = metadata.find(|m| m.key == key);
    let value = value.and_then(|m| m.value.clone());
    let schema = file.schema_descr();
    let mut columns: Vec<Named> = Vec::new();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        for at in 0..schema.num_columns() {
            let column = column(group.get_column_reader(at)?, rows)?;
            match columns.get_mut(at) {
                Some((_, all)) => all.extend(column)?,
                None => columns.push((schema.column(at).name().to_string(), column)),
            }
        }
    }
    let rows = columns.first().map(|(_, c)| len(c));
    if columns.iter().any(|(_, c)| Some(len(c)) != rows) {
        return Err(wrong("its columns are not of one length"));
    }
    Ok((columns, value))
}

fn len(column: &Column) -> usize {
    match column {
        Column::Whole(values) => values.len(),
        Column::Number(values) => values.len(),
        Column::Text(values) => values.len(),
    }
}

/// The column of that name.
pub fn named<'a>(columns: &'a [Named], name: &str) -> std::result::Result<&'a Column, String> {
    let mut all = columns.iter();
    let found = all.find(|(of, _)| of == name);
    found
        .map(|(_, column)| column)
        .ok_or_else(|| format!("it has no column {name}"))
}

/// A column of text without gaps.
pub fn words(columns: &[Named], name: &str) -> std::result::Result<Vec<String>, String> {
    let found = match named(columns, name)? {
        Column::Text(values) => values.iter().cloned().collect::<Option<Vec<String>>>(),
        Column::Whole(_) | Column::Number(_) => None,
    };
    found.ok_or_else(|| format!("column {name} is no text, or has gaps"))
}

/// A column of whole numbers from 0 on, without gaps.
pub fn counts(columns: &[Named], name: &str) -> std::result::Result<Vec<u64>, String> {
    let found = match named(columns, name)? {
        Column::Whole(values) => values
            .iter()
            .map(|v| u64::try_from((*v)?).ok())
            .collect::<Option<Vec<u64>>>(),
        Column::Text(_) | Column::Number(_) => None,
    };
    found.ok_or_else(|| format!("column {name} is no count, or has gaps"))
}
