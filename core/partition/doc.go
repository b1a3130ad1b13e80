// Package partition is the replicated state of one partition and its leader's
// work: offsets, append times, producers, the segment list, retention.
//
// It owns
//   - the state that every replica derives from the same entries (state.go,
//     producer.go) and its snapshot (snapshot.go);
//   - the leader's speculative view ahead of it (leader.go, append.go), the
//     what came before its predecessor (early.go), proposals of retention
//     (retain.go);
//   - answers to readers, from the newest batches kept in memory or from the
//     stored segments (hot.go, read.go, locate.go).
//
// Duties. The leader dedupes, stamps offset and time, and proposes; apply
// verifies and gives an offset only to a batch whose base is the next offset
// and whose sequence fits. An entry that fails this gets no offset, on every
// replica alike. What a client is told, it is told at apply. A dropped proposal
// changes nothing.
//
// Entries. A stamped batch is an entry as it is; its first byte is 'T', of the
// batch's magic. Any other command begins with a version byte (command.go).
// Each command carries its log time, stamped like a batch's append time, so
// that the log of a quiet partition moves on in time when something is due.
//
// Invariants
//   - 0 <= log start <= next offset; batches are contiguous in [log start, next).
//   - The high watermark is the applied next offset: nothing at or above it is shown.
//   - Append time and log time never decrease along the log. Ages are reckoned
//     by a clock of their own, which stands still after an entry whose time could
//     not be trusted (logClock).
//   - There is at least one segment; the first begins at the log start, the last
//     is active; all others hold at least one batch.
//   - Apply reads the entry and the state, nothing else. Retention is checked
//     again at apply against the replicated settings, so a leader with an old
//     map cannot delete too much.
//   - Memory: recent batches up to Limits.HotBytes (or one batch), publishes and
//     readers waiting up to Limits.Waiting each, batches that wait for their
//     predecessor up to 16 MiB, producers up to MaxProducers.
//
// Units: offsets and sequences count messages, sizes are bytes, moments are
// nanoseconds (model.Wall in the log, model.Mono for waiting).
package partition
