// Package probe names the points in the core that are worth reaching: rare turns
// of which a test that never takes them proves nothing. A simulator counts them;
// in production nobody does.
//
// Duties: a point only says that it was passed. Nothing may depend on whether it
// is counted, and a point costs nothing but a comparison where it is not.
package probe

// Point is a place in the code, by what happens there.
type Point string

// Func counts; nil counts nothing.
type Func func(Point)

// Hit counts a point that is passed.
func (f Func) Hit(p Point) {
	if f != nil {
		f(p)
	}
}

// The log and its leader.
const (
	LeaderLostUncommitted  Point = "leader lost between append and commit"
	LeaderLostReads        Point = "leader lost with reads waiting for a quorum"
	ReadsWithoutQuorum     Point = "reads given up for want of a quorum"
	ReadAheadOfApply       Point = "read confirmed ahead of what is applied"
	ProposalsDropped       Point = "proposals dropped by raft, the machine begins afresh"
	TooMuchUncommitted     Point = "proposal refused, too much is uncommitted"
	VoteWaits              Point = "vote request waits for the disk"
	LeaderForgotten        Point = "silent leader forgotten"
	TailReplaced           Point = "durable tail of a log replaced"
	SnapshotSent           Point = "snapshot made for a replica that is behind"
	SnapshotInstalled      Point = "snapshot installed"
	SnapshotLost           Point = "snapshot on its way taken for lost"
	CheckpointDuringWrites Point = "checkpoint with log writes under way"
	MembersChanged         Point = "membership change applied"
	LeadershipHandedOver   Point = "leadership handed over"
)

// Copies of segments.
const (
	CopyBegun         Point = "copy begun before a snapshot"
	CopyRedirected    Point = "copy goes on at another leader"
	CopyTriedAgain    Point = "copy tried again after silence"
	StoreEmptied      Point = "store emptied, the log begins later"
	CheckpointWaits   Point = "checkpoint waits for a snapshot or an emptied store"
	DamageFound       Point = "damaged batch found in a segment"
	DamageRepaired    Point = "damaged batch repaired from another replica"
	DamageNotRepaired Point = "damaged batch that nobody can repair"
	ScrubPassed       Point = "scrub read over everything stored"
	AppendsHeldBack   Point = "appends held back, segments are behind"
)

// Nodes.
const (
	FormerLife      Point = "packet for a former life of its receiver"
	OtherFolder     Point = "node comes back with another folder"
	TwoFolders      Point = "two folders under one name at a time"
	SetBackTold     Point = "node told that its folder is an old copy"
	SetBackHeard    Point = "node learns that its folder is an old copy"
	ReplicaDropped  Point = "replica dropped as the catalog says"
	MetaBeginsAgain Point = "replica of meta begins again on its node"
	NodeJoins       Point = "node let join"
	ClockNotTrusted Point = "wall clock not trusted"
	DiskLow         Point = "disk nearly full"
	DiskRoom        Point = "disk has room again"
	OthersDisksLow  Point = "publish refused for other replicas' disks"
)

// Partitions.
const (
	RetryRemembered     Point = "retry answered from memory"
	RetryAfterFailover  Point = "retry answered by a leader that did not append it"
	RetryJoins          Point = "retry joins the first attempt under way"
	SequenceTooOld      Point = "retry older than what is remembered"
	SequenceGap         Point = "sequence gap refused"
	BatchWaits          Point = "batch waits for its predecessor"
	BatchFollows        Point = "predecessor came, the batch follows"
	BatchWaitedInVain   Point = "predecessor did not come in time"
	EpochFenced         Point = "fenced epoch refused"
	StaleMap            Point = "batch split by an old number of partitions refused"
	TimeHeld            Point = "append time held where the clock went back"
	TimeUntrusted       Point = "append time without a trusted clock"
	ReadStored          Point = "read from segments"
	ReadParked          Point = "read waits for the next message"
	ReadOvertaken       Point = "log start passed a read under way"
	SegmentRolledBySize Point = "segment rolled by size"
	SegmentRolledByAge  Point = "segment rolled by age"
	Trimmed             Point = "segments trimmed"
)

// Gateways.
const (
	TriedAgain          Point = "call tried again after an unknown outcome"
	OutcomeUnknown      Point = "call given up with an unknown outcome"
	HintFollowed        Point = "hint to a leader followed"
	RefusedAfterUnknown Point = "refusal after an unknown try is not passed on"
	NoLeader            Point = "no leader found in time"
	SplitAnew           Point = "publish split anew after partitions were added"
	PullReplayed        Point = "pull given again what it gave before"
	PullOvertaken       Point = "place in the subscription lost between grant and delivery"
	PullSkips           Point = "pull told of messages that retention took"
)

// Points are all of them.
func Points() []Point {
	return []Point{
		LeaderLostUncommitted, LeaderLostReads, ReadsWithoutQuorum, ReadAheadOfApply, ProposalsDropped,
		TooMuchUncommitted, VoteWaits, LeaderForgotten, TailReplaced, SnapshotSent, SnapshotInstalled,
		SnapshotLost, CheckpointDuringWrites, MembersChanged, LeadershipHandedOver,
		CopyBegun, CopyRedirected, CopyTriedAgain, StoreEmptied, CheckpointWaits, DamageFound, DamageRepaired,
		DamageNotRepaired, ScrubPassed, AppendsHeldBack,
		FormerLife, OtherFolder, TwoFolders, SetBackTold, SetBackHeard, ReplicaDropped, MetaBeginsAgain,
		NodeJoins, ClockNotTrusted, DiskLow, DiskRoom, OthersDisksLow,
		RetryRemembered, RetryAfterFailover, RetryJoins, SequenceTooOld, SequenceGap, BatchWaits, BatchFollows,
		BatchWaitedInVain, EpochFenced, StaleMap, TimeHeld, TimeUntrusted, ReadStored, ReadParked,
		ReadOvertaken, SegmentRolledBySize, SegmentRolledByAge, Trimmed,
		TriedAgain, OutcomeUnknown, HintFollowed, RefusedAfterUnknown, NoLeader, SplitAnew, PullReplayed,
		PullOvertaken, PullSkips,
	}
}
