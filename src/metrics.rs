//! Every metric: name, help, unit and labels, in one table.
