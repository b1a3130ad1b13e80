// Package choice names the points of the core at which either of two ways is
// right, and lets whoever runs the core take the rarer one.
//
// What is a matter of speed alone, and never of a promise, is a choice: how much
// goes into one packet, when a checkpoint begins, whether a read is served from
// memory or from the segments. In production all of them are left to the code
// itself. The simulator takes the rare way on purpose, in some runs at some
// sites, so that what happens once a year under load happens every second
// (FoundationDB's "buggify" is the pattern).
//
// Invariant: no answer that a client gets, other than a refusal that asks it to
// try again, depends on a choice.
package choice

// Site is a point at which there is a choice; its name says what the rare way is.
type Site string

// The sites, by where they are.
const (
	// The shard.
	CheckpointNow   Site = "checkpoint-now"   // a checkpoint begins before it is due
	MarkNow         Site = "mark-now"         // a sync mark follows a write at once
	PacketEnds      Site = "packet-ends"      // a packet ends after one item
	AnswersReversed Site = "answers-reversed" // the newest answer is taken first
	GroupsReversed  Site = "groups-reversed"  // the group touched last is drained first
	CopyEndsEarly   Site = "copy-ends-early"  // a copy takes one batch of a stretch
	HandOver        Site = "hand-over"        // a leader hands over without a reason

	// A replica.
	WindowEmptied  Site = "window-emptied"  // the log window keeps nothing that is applied
	ProposalDenied Site = "proposal-denied" // a proposal is denied
	CommitWaits    Site = "commit-waits"    // a write of the commit index alone waits for the disk

	// A partition.
	PublishThrottled Site = "publish-throttled" // a publish is throttled
	EarlyRefused     Site = "early-refused"     // a batch before its turn is refused
	RollNow          Site = "roll-now"          // a segment is rolled before it is full
	ReadStored       Site = "read-stored"       // what is in memory is read from the segments
	ReadOneBatch     Site = "read-one-batch"    // a read brings one batch

	// A gateway.
	AnswerLost     Site = "answer-lost"     // an answer is taken for lost
	LeaderUnknown  Site = "leader-unknown"  // the known leader is not asked first
	CatalogFetched Site = "catalog-fetched" // a gateway waits for a newer catalog
	PullOne        Site = "pull-one"        // a round of a pull brings one message
)

// Sites are all sites with one in how many of their hits takes the rare way,
// where the run has them live: a quarter, but seldom where it costs much.
func Sites() map[Site]uint64 {
	return map[Site]uint64{
		CheckpointNow: 1024, MarkNow: 4, PacketEnds: 4, AnswersReversed: 4, GroupsReversed: 4, CopyEndsEarly: 4, HandOver: 64,
		WindowEmptied: 64, ProposalDenied: 16, CommitWaits: 4,
		PublishThrottled: 16, EarlyRefused: 4, RollNow: 16, ReadStored: 4, ReadOneBatch: 4,
		AnswerLost: 64, LeaderUnknown: 16, CatalogFetched: 4, PullOne: 4,
	}
}

// Func chooses. It is deterministic in the simulator: equal runs ask it the same.
type Func func(Site) bool

// Rare says whether the rare way is to be taken; never without a Func.
func (f Func) Rare(s Site) bool { return f != nil && f(s) }
