// SPDX-License-Identifier: GPL-2.0-only
//! A table that other libraries take without a copy, by Arrow's C interface.
use crate::errors;
use crate::sweep::columns::Named;
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

/// A table of columns. Whatever knows Arrow's PyCapsule interface takes it as it is, without a copy:
/// `pyarrow.table(t)`, `polars.DataFrame(t)`, `duckdb`, ...
#[pyclass(frozen, module = "berth")]
pub struct Table {
    batch: RecordBatch,
}

impl Table {
    pub fn of(columns: Vec<(&str, ArrayRef)>) -> PyResult<Table> {
        let batch = RecordBatch::try_from_iter(columns).map_err(errors::failed)?;
        Ok(Table { batch })
    }

    /// Of columns in memory, and more of them behind.
    pub fn of_named(columns: &[Named], more: Vec<(&str, ArrayRef)>) -> PyResult<Table> {
        let columns = columns.iter().map(|(name, c)| (name.as_str(), c.arrow()));
        Table::of(columns.chain(more).collect())
    }
}

/// A package that is not always there.
fn extra<'py>(py: Python<'py>, package: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    match py.import(package) {
        Ok(module) => Ok(module.into_any()),
        Err(e) if e.is_instance_of::<PyImportError>(py) => Err(PyImportError::new_err(format!(
            "{package} is not installed: pip install 'berth-sched[{name}]'"
        ))),
        Err(e) => Err(e),
    }
}

/// A cell as Python has it.
fn value<'py>(py: Python<'py>, column: &ArrayRef, i: usize) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(i) {
        return Ok(py.None().into_bound(py));
    }
    if let Some(text) = column.as_string_opt::<i32>() {
        return text.value(i).into_bound_py_any(py);
    }
    if let Some(x) = column.as_primitive_opt::<Float64Type>() {
        return x.value(i).into_bound_py_any(py);
    }
    if let Some(n) = column.as_primitive_opt::<Int64Type>() {
        return n.value(i).into_bound_py_any(py);
    }
    if let Some(n) = column.as_primitive_opt::<UInt64Type>() {
        return n.value(i).into_bound_py_any(py);
    }
    if let Some(n) = column.as_primitive_opt::<UInt32Type>() {
        return n.value(i).into_bound_py_any(py);
    }
    if let Some(b) = column.as_boolean_opt() {
        return b.value(i).into_bound_py_any(py);
    }
    if let Some(list) = column.as_list_opt::<i32>() {
        let cells = list.value(i);
        let cells: PyResult<Vec<_>> = (0..cells.len()).map(|i| value(py, &cells, i)).collect();
        return cells?.into_bound_py_any(py);
    }
    Err(errors::failed(format!(
        "a column of {} is not known",
        column.data_type()
    )))
}

#[pymethods]
impl Table {
    /// Arrow's stream of this table; `requested_schema` is not looked at, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let schema = self.batch.schema();
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let schema = self.batch.schema();
        schema.fields().iter().map(|f| f.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!(
            "<berth.Table: {} rows; {}>",
            self.batch.num_rows(),
            self.columns().join(", ")
        )
    }

    /// All rows, each a dict of the columns' names and values.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let schema = self.batch.schema();
        let columns = self.batch.columns();
        let row = |i: usize| {
            let row = PyDict::new(py);
            for (field, column) in schema.fields().iter().zip(columns) {
                row.set_item(field.name(), value(py, column, i)?)?;
            }
            Ok(row)
        };
        (0..self.batch.num_rows()).map(row).collect()
    }

    /// As a `pyarrow.Table`, without a copy.
    fn to_arrow<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        extra(slf.py(), "pyarrow", "pandas")?.call_method1("table", (slf,))
    }

    /// As a `pandas.DataFrame`.
    fn to_pandas<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        extra(slf.py(), "pandas", "pandas")?;
        Table::to_arrow(slf)?.call_method0("to_pandas")
    }

    /// As a `polars.DataFrame`, without a copy.
    fn to_polars<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        extra(slf.py(), "polars", "polars")?.call_method1("DataFrame", (slf,))
    }
}
