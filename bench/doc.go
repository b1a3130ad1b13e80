// Package bench loads a running cluster through the Go client and says what it
// did: messages per second, latencies, core-seconds and bytes written.
//
// It owns the load generators (publish, consume, end to end, failover), the
// figures they give, and their presentation as JSON, a table and a page. It
// knows nothing of how the cluster was started: see bench/suite for the standard
// table, bench/physical for the limit of the machine, bench/peers for others.
//
// Duties and invariants:
//   - with a rate, load is an open loop: a latency counts from the moment at
//     which the message was due, whatever the publisher was doing then, so that a
//     stall shows in every message it delayed;
//   - without one, a window of messages is kept in flight, and a latency counts
//     from the moment the message was handed over;
//   - warm-up is never counted; a message belongs to the round in which its result came;
//   - a result of several rounds is the median of each figure; the lowest and the
//     highest rate are kept beside it.
//
// Units: latencies are in milliseconds in what is written and in nanoseconds
// inside, sizes in bytes, rates per second. MB is 10^6 bytes.
package bench
