// Package checker judges what a cluster did from what its clients saw.
//
// It owns histories (what clients called and what they were answered), the
// verdicts drawn from a finished history (black box), models for porcupine (is
// one small partition's history linearizable?), and invariants that a simulator
// feeds while it runs (white box). It knows nothing of the broker's inside but
// its ids, so a history of any other system can be judged, too.
//
// # Duties
//
//   - A verdict is drawn from the history and the final state alone, in linear
//     time but for sorting, the same for the same input.
//   - An unknown outcome is an open interval: the operation may have happened at
//     any moment after its call, or never. No verdict fails on the strength of
//     something that may merely have happened.
//   - OK, Failed and Undecided are three results. What could not be judged (no
//     final log, budget spent) is Undecided, never OK.
//
// # What a recorder must do
//
//   - One Op per partition: a request that falls into several partitions becomes
//     several ops with the same interval. A retry of a publish is an op of its own.
//   - Payload ids are unique per message; the retries of a message share its id.
//   - Outcome OK: answered yes. Refused: answered with an error that promises it
//     did not and will not happen. Unknown: everything else (timeouts, lost
//     connections, UNKNOWN_OUTCOME).
//   - A topic or subscription that is deleted and made again is another one: name
//     it otherwise (such as "orders#2").
//   - Of a batch that was read, only the messages asked for are noted.
//   - Clients ack only what they were given, without gaps; an ack that reaches
//     further is marked blind. A pull without an answer gives its client nothing.
//   - Times are read from one clock for all clients.
//
// # Files
//
// A history is written as JSON lines, one object each, fields in snake case
// (docs/histories.md explains each of them to those who write recorders):
//
//	{"client":1,"call":5,"return":9,"outcome":"ok","publish":{"topic":"orders","partition":0,
//	   "messages":[{"key":"a","payload":17}],"offset":3}}
//	{"client":2,"call":7,"return":null,"outcome":"unknown","ack":{"subscription":"orders/s",
//	   "member":"m1","generation":2,"partition":0,"next":4}}
//	{"log":{"topic":"orders","partition":0,"log_start":0,"high_watermark":1,
//	   "messages":[{"offset":0,"payload":17,"append_time":1000}]}}
//	{"cursors":{"subscription":"orders/s","partitions":[{"partition":0,"offset":4}]}}
//	{"drained":true}
//
// (folded here: a line is a whole object, and an object one line).
// The first kind are operations, in order of their calls; the others are the
// final state and come last. A log may be continued by further log lines of the
// same partition. A missing or null return is open. A line has at most 16 MiB.
//
// # Units
//
// Call and return are nanoseconds on the history's clock (Moment); append times
// are nanoseconds since the Unix epoch (model.Wall). Ranges are [from, to).
package checker
