// Package subscription is the subscription coordinator: a group.Machine that
// holds the cursors, members, owners and fences of many subscriptions in one
// raft group, and the leader's work around them.
//
// It owns, per subscription, the replicated state (state.go) and, while it
// leads, the memory that a failover may lose (lead.go): when members were last
// heard of, what is out under a lease, where pulls that run ahead stand.
//
// # Files
//
//	state.go    replicated state and its snapshot
//	command.go  raft entries and their codec; apply.go what they do
//	machine.go  requests from Handle to Reply, proposals, leadership
//	lead.go     the leader's memory; advance.go what the leader proposes by itself
//	assign.go   who should own what; shifts.go   how often that may change
//	intervals.go  sets of offsets
//	lease.go    what is out: limits, deadlines, attempts, pauses
//	letters.go  dead letters in the state; bury.go the leader's work on them
//	pass.go     what a filter does not want
//	kept.go     snapshots of cursors
//	grant.go, deliver.go, ack.go, nack.go, manage.go   one kind of request each
//	shared.go   mode shared in the state: what is out with whom; share.go its entries
//	compete.go, giveback.go   its pulls; its nacks, extensions and ends of leases
//
// # Duties
//
//   - Apply reads state and entry, nothing else. A command that no longer fits
//     the state changes nothing.
//   - What changes state is answered after it was applied; what is read for
//     others' eyes (deliveries, descriptions) is answered after a ReadIndex, so
//     a leader that was replaced without knowing cannot hand out what is acked.
//   - At most one structural command (Init, Grow, Drop, Members, Assign) of a
//     subscription is under way at a time; requests that need one are parked and
//     served again after it. At most one Ack entry of the group is under way;
//     acks that come meanwhile share the next.
//
// # Invariants
//
//   - A partition has one owner, and its owner is a member. Whenever the owner
//     changes, or a seek moves the cursor, the generation rises by one and the
//     partition's fence becomes the new generation: (partition, fence) names one
//     owner for ever.
//   - 1 <= fence <= generation.
//   - What is acked ahead of a cursor lies above it, in ranges that do not touch;
//     an ack that would leave too many of them is refused whole, none is forgotten.
//   - What a filter does not want is taken as acked when a pull went over it.
//   - A cursor falls by a seek only. An ack is accepted iff its member owns the
//     partition and fence <= ack's generation <= generation.
//   - In the leader's memory cursor <= leased <= delivered and position <= delivered.
//   - A message comes again after a nack, or when its lease or its member's session
//     ends; then, and only of the nacked or the first unacked one, an attempt is
//     counted, in replicated state, until it is acked or a seek moves the cursor.
//     A delivery counts one at most, in however many ways it ends at once.
//     What was given from there on is void: it comes again in order.
//   - No member is given more messages than the limit, however it pulls.
//   - A message whose attempts are used up is moved in two steps, and nothing goes
//     out beyond it meanwhile: the entry that begins the move carries the message
//     and its producer's sequence, so that its copy is stored once however often it
//     is sent; the entry that ends it acks the message. It waits as long as it must.
//   - A partition that changed hands twice within a session timeout stays with a
//     holder that lives, as far as this leader knows.
//   - A partition is taken from a member that stays only when all that
//     is out with it is acked, or an ack deadline after it stopped getting more.
//
// In mode shared nobody owns a partition, and the generation rises by seeks only:
//
//   - What is out is replicated state: a message has one holder at a time, by an
//     entry that was applied before the pull is answered. So the limits hold over
//     failovers; deadlines and pauses are the leader's, and begin anew.
//   - A message is open until it is acked, save while it is out, waits after a
//     nack, or is a dead letter. What came back is offered before what is new.
//   - A nack or an extension names the current delivery. An ack counts whatever
//     became of its lease, up to the next seek.
//   - Attempts are counted when a delivery ends by nack, deadline or the death of
//     its holder, of every message. What a pull did not carry home, because nobody
//     waits for it any more, or what who leaves holds, comes back uncounted.
//   - Messages of one key (key_ordered) are out with one member, and what is out
//     of a key comes before what is not. The keys of all that lies below the
//     frontier and is not acked are known, at most 10,000 a partition: beyond, a
//     pull waits. Messages without a key are bound by no order.
//
// # Units
//
// Offsets are messages, ranges are [From, To), generations count from 1, times
// are nanoseconds of the node's monotonic clock.
package subscription
