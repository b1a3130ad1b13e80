// Package core is the broker as a pure state machine.
//
// A Shard owns the raft groups that have a replica on this node, and the node's
// gateway. It is single-threaded: Step takes one event and returns effects. It
// never blocks, reads no clock but the instant it is given, starts nothing, and
// allocates within limits.
//
// The contract between a Shard and its host:
//
//  1. Start is the first event, once. Load has approved what it carries.
//  2. Events are handed over one at a time, each with the instant at which it was
//     taken up; the monotonic clock never goes back within a boot.
//  3. Effects may be carried out as soon as they are seen. Lanes order them: one
//     FIFO for the journal, one per partition for segment writes, one per peer for
//     sends. No lane waits for another, except that a checkpoint waits for what was
//     emitted before it. What depends on durability is emitted only in the step
//     that handles the JournalDone for it.
//  4. JournalDone(upto) is given only when every record up to and with upto is
//     durable. An error of the journal is not reported: the host stops the node.
//  5. Bytes handed over with an event or an effect belong to the receiver and are
//     not changed by anyone any more.
//  6. Equal events give equal effects, byte for byte.
//
// Invariants kept here: a group's replica is created from the catalog once and
// recorded in the journal before its first write; a packet is taken only from the
// sender's current incarnation and for this one; every request is replied to once.
package core
