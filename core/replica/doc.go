// Package replica is one member of one raft group: it drives etcd's RawNode
// deterministically and stands between it, the shard's journal, and the
// group.Machine that applies committed entries.
//
// What it owns: the RawNode, its in-memory log window (storage.go), the election
// clock (election.go), the queue of journal writes under way, linearizable reads
// (reads.go), snapshots, and the own-term gate.
//
// Its duties, which are raft's conditions for safety:
//
//  1. A response that promises durability leaves only in the step that handles
//     JournalDone for its write. A write that moves nothing but the commit index
//     promises nothing of its own: when no other is under way, its responses
//     leave at once, and nobody waits for its sync.
//  2. A vote request leaves only when term, vote and log tail it speaks for are
//     durable. With asynchronous storage writes raft itself defers only append
//     and vote responses; campaign() emits MsgVote at once. A candidate that
//     crashed in between could campaign twice in one term and collect a grant
//     from its former life. So MsgVote joins the responses of its Ready's write.
//  3. Followers and candidates are never ticked: raft would draw its election
//     timeout from crypto/rand. The clock here decides instead: after T without
//     contact ForgetLeader, so that a lease does not outlive its leader; after T
//     plus jitter Campaign. Only leaders are ticked.
//  4. A machine leads only after an entry of its own term is applied. A new
//     leader therefore knows all that was ever committed before it answers.
//  5. Entries above the applied index are never evicted from the window; below,
//     a bounded tail is kept for followers. What is gone is answered ErrCompacted.
//  6. A snapshot is built on demand, at the applied index, with the membership
//     in force there.
//
// Times are model.Mono of this node, within one boot.
package replica
