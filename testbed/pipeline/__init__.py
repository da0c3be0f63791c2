"""Event simulator of asynchronous training: throughput against staleness, and the lag trace behind both."""
