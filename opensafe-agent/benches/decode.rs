//! Records of the ring buffer that one core decodes in a second; see docs/performance.md.
#![allow(missing_docs)] // what criterion's macros make

use std::{fs, hint::black_box, path::Path};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use opensafe_agent::untrusted::decoded;

/// Of the parser's corpus: those that are most of what comes, and the longest there may be.
const RECORDS: [&str; 6] = [
    "file-usual",
    "exec",
    "connect",
    "fork",
    "exit",
    "file-longest",
];

fn decode(criterion: &mut Criterion) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/event");
    let mut group = criterion.benchmark_group("decode");
    for name in RECORDS {
        let path = corpus.join(name);
        let record = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(decoded(&record).is_some(), "{name} is no record");
        group.throughput(Throughput::Elements(1));
        group.bench_with_input(
            BenchmarkId::from_parameter(name),
            &record,
            |bencher, record| {
                bencher.iter(|| decoded(black_box(record)));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
