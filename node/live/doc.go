// Package live runs a node in a process: goroutines, listener, clock, metrics.
//
// It owns everything around node.Host that the simulator replaces: the inbox and
// the one goroutine that steps the shard, the goroutines behind the host's lanes,
// the HTTP server with the Connect services, and the peer streams. It holds no
// decision of the protocol.
//
// Duties and invariants:
//   - only the loop's goroutine touches the Host (but for DoJournal, which only
//     the journal's goroutine calls) and the table of requests under way;
//   - nothing the loop does blocks: lanes take work without waiting. What comes
//     from outside is bounded: requests beyond the limit are THROTTLED, packets
//     beyond it are dropped. Continuations are never refused; their number is
//     bounded by the work the core gave out;
//   - everything queued for the journal is written together, with one sync;
//   - work of one segment lane runs in order and never two at a time;
//   - an error reaches a client only as api's error table says; any other is
//     INTERNAL and logged.
//
// Times are host time; model.Mono counts from one second before the start.
package live
