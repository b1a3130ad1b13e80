package core

import (
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// Config is one shard's: fixed for the run. Nothing in it is read by apply.
type Config struct {
	Self  model.NodeID
	Peers []model.Node // every node of the cluster as configured, this one too
	// Bootstrap founds a cluster without asking the peers: for the first start
	// of a cluster some of whose nodes are known to be gone for good.
	Bootstrap bool
	Seed      uint64 // of this node's random choices
	Timing    Timing
	Limits    Limits
	// Unpack reads packed batches, which dead letters are taken out of; nil: such
	// a message waits where it is.
	Unpack batch.Unpack
	// Coordinators is the number of coordinator groups at founding.
	Coordinators uint32
	// Choice takes the rarer of two right ways now and then; nil: never.
	Choice choice.Func
	// Probe counts the points that are passed; nil: nobody does.
	Probe probe.Func
}

// Timing is the protocol's clock.
type Timing struct {
	Heartbeat       time.Duration // 75 ms
	Election        time.Duration // 300 ms; jitter up to the same is added
	MaxSkew         time.Duration // 5 s
	ReadIndexWait   time.Duration // 2 s: then NO_LEADER
	TryTimeout      time.Duration // 1 s: a gateway's patience with one forwarded call
	LeaderWait      time.Duration // 5 s: a gateway's patience with a group without leader
	MarkAfter       time.Duration // 50 ms idle: then a sync mark goes to the journal
	ScrubEvery      time.Duration // 1 h between two readings of all that is stored
	CheckpointAfter time.Duration // 60 s at most between checkpoints while there is something new
}

// Limits bound memory and files. Zero fields take the default.
type Limits struct {
	WindowEntries     int           // applied raft entries kept per group, 4096
	WindowBytes       int           // … and their bytes, 4 MiB
	InflightMessages  int           // raft packets in flight per follower, 64
	InflightBytes     int           // … and their bytes, 8 MiB
	UncommittedBytes  int           // proposals not yet committed per group, 16 MiB
	HotBytes          int           // recent batches kept for readers per partition, 4 MiB
	Requests          int           // client requests under way per shard, 10,000
	Waiting           int           // requests waiting per group, 4,096
	CheckpointBytes   int64         // journal bytes after which a checkpoint starts, 64 MiB
	SegmentBytes      int64         // size at which the leader rolls a segment, 64 MiB
	SegmentAge        time.Duration // age at which it does, 1 h
	FreeLow, FreeHigh uint64        // bytes free below which publishes are refused, above which taken again
	SegmentQueueBytes int64         // batches that wait to be written to segments, 64 MiB, then nothing new is taken
	ScrubBytes        int           // stored bytes read over for damage per second, 4 MiB
	MaxBatchBytes     int           // 8 MiB
	MaxMembers        int           // per subscription, 1,000
	MaxProducers      int           // remembered per partition, 10,000
}

// WithDefaults fills zero fields.
func (c Config) WithDefaults() Config {
	def(&c.Timing.Heartbeat, 75*time.Millisecond)
	def(&c.Timing.Election, 300*time.Millisecond)
	def(&c.Timing.MaxSkew, model.DefaultMaxSkew)
	def(&c.Timing.ReadIndexWait, 2*time.Second)
	def(&c.Timing.TryTimeout, time.Second)
	def(&c.Timing.LeaderWait, model.MaxLeaderWait)
	def(&c.Timing.MarkAfter, 50*time.Millisecond)
	def(&c.Timing.CheckpointAfter, 60*time.Second)
	def(&c.Timing.ScrubEvery, time.Hour)
	c.Limits = c.Limits.withDefaults()
	def(&c.Coordinators, 4)
	return c
}

func (l Limits) withDefaults() Limits {
	def(&l.WindowEntries, 4096)
	def(&l.WindowBytes, 4<<20)
	def(&l.InflightMessages, 64)
	def(&l.InflightBytes, 8<<20)
	def(&l.UncommittedBytes, 16<<20)
	def(&l.HotBytes, 4<<20)
	def(&l.Requests, 10_000)
	def(&l.Waiting, 4096)
	def(&l.CheckpointBytes, 64<<20)
	def(&l.SegmentBytes, 64<<20)
	def(&l.SegmentAge, time.Hour)
	def(&l.FreeLow, 256<<20)
	def(&l.FreeHigh, 384<<20)
	def(&l.SegmentQueueBytes, 64<<20)
	def(&l.ScrubBytes, 4<<20)
	def(&l.MaxBatchBytes, model.MaxRequestBytes)
	def(&l.MaxMembers, 1000)
	def(&l.MaxProducers, 10_000)
	return l
}

func def[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
