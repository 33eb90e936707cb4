//! Tables: rows as the apiserver printed them, with the cells that show a time made again. Pure.

mod answer;
mod columns;
mod human;
mod packed;
mod print;
mod proof;
mod row;
mod source;
mod split;

pub use self::{
    answer::table_line,
    columns::has_columns_once,
    human::Moment,
    print::{TableEnvelope, fixed_start, object_of, raw_at, unproven_column},
    proof::Window,
    split::TableSplitter,
};
