//! A sample of the field matrix, compared to the digit with a committed table: a change of the
//! gateway, the client or the links that moves a cell shows here.
//!
//! Virtual time: results are independent of this machine's speed.

#[test]
fn the_sample_of_the_field_matrix_is_the_committed_one() {
    let committed = include_str!("field.csv");
    let measured = packrat_lab::field::sample_table(2).expect("every trial has a result");
    if measured == committed {
        return;
    }
    let mut report = String::new();
    for (line, (is, was)) in measured.lines().zip(committed.lines()).enumerate() {
        if is != was {
            report.push_str(&format!("line {}\n  is  {is}\n  was {was}\n", line + 1));
        }
    }
    panic!(
        "the field matrix has changed:\n{report}\
         Is every cell at least as good as before? If so, or if the price is worth it, say so in the commit, and write the table anew:\n  \
         cargo run --release -p packrat-lab -- field --sample > lab/tests/field.csv"
    );
}
