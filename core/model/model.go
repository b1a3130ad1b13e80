// Package model holds the words every other package speaks: typed ids,
// offsets, moments, limits, and the one error type that reaches clients.
//
// It owns no behaviour beyond validation and imports nothing but pure
// standard packages, so that any package may import it.
package model

import "time"

// NodeID is a node's configured name, such as "n1".
type NodeID string

// DiskID is drawn at random once for a data folder. A wiped node has another.
type DiskID uint64

// Incarnation names one run of one data folder: packets carry the sender's and
// the receiver's, and whatever names another than the current one is dropped.
type Incarnation struct {
	Disk DiskID
	// Boot is fsynced before the first packet. Its upper bits count the folder's
	// starts, from 1; the lower ones are drawn anew at each, so that two starts
	// from copies of one folder differ.
	Boot uint64
}

// bootDrawn is the number of bits of Boot that are drawn.
const bootDrawn = 20

// Starts is how often the folder was started.
func (i Incarnation) Starts() uint64 { return i.Boot >> bootDrawn }

// NextBoot is the boot of the next start, with bits drawn at random.
func (i Incarnation) NextBoot(random uint64) uint64 {
	return (i.Starts()+1)<<bootDrawn | random&(1<<bootDrawn-1)
}

// GroupID names a raft group. Ids are never reused.
type GroupID uint64

// Fixed group ids. Partition groups are numbered by meta from FirstPartitionGroup.
const (
	MetaGroup             GroupID = 1
	FirstCoordinatorGroup GroupID = 16
	FirstPartitionGroup   GroupID = 1024
)

// ReplicaID is raft's id of one replica of one group; never reused in a cluster.
type ReplicaID uint64

// TopicID and SubscriptionID start at 1 and are never reused.
type (
	TopicID        uint64
	SubscriptionID uint64
)

// Partition numbers a topic's partitions from 0.
type Partition uint32

// Offset is a message's position in its partition, from 0.
type Offset uint64

// ProducerID and Epoch start at 1; 0 means "no producer".
type (
	ProducerID uint64
	Epoch      uint64
)

// Sequence counts messages per (producer, epoch, partition), from 0.
type Sequence uint64

// Generation is a subscription's counter of assignment changes and seeks, from 1.
type Generation uint64

// MemberID names a consumer within a subscription.
type MemberID string

// Mono is nanoseconds on a node's monotonic clock; comparable within one boot only.
type Mono int64

// Wall is nanoseconds since the Unix epoch.
type Wall int64

// Never is a moment that does not come.
const Never Mono = 1<<63 - 1

// Add returns m moved by d.
func (m Mono) Add(d time.Duration) Mono { return m + Mono(d) }

// Sub returns the time between o and m.
func (m Mono) Sub(o Mono) time.Duration { return time.Duration(m - o) }

// Instant is what an outside clock says at one step: both clocks of one node.
type Instant struct {
	Mono Mono
	Wall Wall
}

// Limits of semantics: each is enforced by the gateway with a clear error.
const (
	MaxMessageBytes   = 1 << 20
	MaxRequestBytes   = 8 << 20
	MaxAttributes     = 64
	MaxKeyBytes       = 32 << 10
	MaxNameBytes      = 128
	MaxPartitions     = 10_000
	ProducerMemory    = 64 // batches remembered per producer and partition
	DefaultPartitions = 1
	DefaultReplicas   = 3
	DefaultInFlight   = 10_000 // messages given to a member and not acknowledged
)

// Default times of semantics.
const (
	DefaultRetention      = 7 * 24 * time.Hour
	DefaultAckDeadline    = 30 * time.Second
	DefaultSessionTimeout = 10 * time.Second
	DefaultMinBackoff     = 100 * time.Millisecond // before a nacked message comes again
	DefaultMaxBackoff     = time.Minute
	ProducerExpiry        = 7 * 24 * time.Hour
	MaxLeaderWait         = 5 * time.Second
	DefaultMaxSkew        = 5 * time.Second
)
