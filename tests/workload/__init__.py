"""One workload for chaos, soak, load tests and benchmarks: records, writers, readers, and one verdict."""
