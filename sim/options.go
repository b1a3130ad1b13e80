package sim

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
)

// Options are everything a run depends on. FromSeed draws them; a scenario or
// a shrinker sets them. The zero value of a rate or mean turns its fault off.
type Options struct {
	Seed         uint64
	Nodes        int
	Coordinators uint32
	Topics       []TopicOptions
	Timing       core.Timing
	Limits       core.Limits
	Network      NetworkOptions
	Disk         DiskOptions
	Clock        ClockOptions
	Faults       FaultOptions
	Load         LoadOptions
	Work         []WorkOptions
	Harm         HarmOptions
	Operator     OperatorOptions
	Choices      Choices
	Journal      JournalOptions
	// Planned puts Strikes in place of the habits of Faults and Harm.
	Planned bool
	Strikes []Strike
	// Safety is how long clients work while faults strike; Liveness how long
	// after healing everything must have succeeded.
	Safety, Liveness time.Duration
}

// JournalOptions hand in a journal engine for the simulated one. The package is
// pure, so an engine that writes real files comes from outside.
type JournalOptions struct {
	Name string // for people; empty: the simulated engine
	// New is an engine over a folder of a node's simulated disk, which must be the
	// truth: what a crash loses there is lost. It must depend on nothing else, or a
	// seed is not a run. Close is called on each engine, also after its process died.
	New func(fsys disk.FS, dir string) record.Engine
}

// TopicOptions is one topic of the run.
type TopicOptions struct {
	Name           string
	Partitions     uint32
	Replicas       uint32
	RetentionTime  time.Duration // 0: the default, longer than any run
	RetentionBytes uint64        // 0: unbounded
}

// NetworkOptions are the weather between nodes, and between clients and nodes.
type NetworkOptions struct {
	MinDelay, MaxDelay                     time.Duration
	Loss, Duplicate, Reorder, Burst        Rate
	ClientMinDelay, ClientMaxDelay         time.Duration
	ClientLossOfRequest, ClientLossOfReply Rate
}

// DiskOptions are how long disk work takes, and what a crash does to unsynced data.
type DiskOptions struct {
	MinSync, MaxSync   time.Duration // of a journal write with its sync
	MinWrite, MaxWrite time.Duration // of a segment write or a read
	Stall              Rate          // of a sync: it takes StallFor
	StallFor           time.Duration
	TornTail           Rate // of a crash: part of the queued journal work reaches the disk
}

// ClockOptions are how the nodes' clocks differ.
type ClockOptions struct {
	MaxOffset time.Duration // of the wall clock, either way
	MaxDrift  int64         // parts per million, either way
}

// FaultOptions are the nemesis' habits: a mean time between two strikes of each
// kind, 0 for never, and a mean time until it is undone.
type FaultOptions struct {
	Crash, CrashFor     time.Duration
	PowerCut            time.Duration // of all nodes at once
	Pause, PauseFor     time.Duration
	Cut, CutFor         time.Duration // both ways between two nodes
	OneWay, OneWayFor   time.Duration
	Isolate, IsolateFor time.Duration
	Hold, HoldFor       time.Duration // packets held, then released in a burst
	Reset               time.Duration
	SlowDisk, SlowFor   time.Duration
	Jump                time.Duration // of a wall clock
	MaxJump             time.Duration
	// AimAtLeader is the chance that a strike goes for the leader of some group.
	AimAtLeader Rate
}

// LoadOptions are who works with the cluster, and how.
type LoadOptions struct {
	Operations    int // client operations in the safety phase, about
	Stop          int // operations after which nobody begins anything new; 0: never
	Keys          int
	Producers     int // idempotent sessions
	Plain         int // producers without an id, by hand
	Subscriptions int // per topic
	Consumers     int // per subscription, through sessions
	Raw           int // consumers by hand, with late and repeated acks
	Readers       int // fetching without a subscription
	Seekers       int // rewinding subscriptions
	Describers    int // reading cursors
	Keepers       int // taking snapshots of cursors and seeking back to them
	Rivals        int // pairs of producers that fence each other, per topic
	Payload       int // bytes at most
	Session       time.Duration
	Restart       Rate // of a consumer's step: it crashes and comes back
	Filtered      int  // subscriptions of a topic, the first, that have a filter
	Wanted        int  // of so many messages a filter wants one; 0: messages have no tags
	Filter        int  // how the filter is written
}

// String prints the options one concern a line.
func (o Options) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed      %d\n", o.Seed)
	fmt.Fprintf(&b, "cluster   nodes=%d coordinators=%d\n", o.Nodes, o.Coordinators)
	for _, t := range o.Topics {
		fmt.Fprintf(&b, "topic     %s partitions=%d replicas=%d retention=%v,%d\n", t.Name, t.Partitions, t.Replicas,
			t.RetentionTime, t.RetentionBytes)
	}
	fmt.Fprintf(&b, "phases    safety=%v liveness=%v\n", o.Safety, o.Liveness)
	fmt.Fprintf(&b, "timing    %s\n", fields(o.Timing))
	fmt.Fprintf(&b, "limits    %s\n", fields(o.Limits))
	fmt.Fprintf(&b, "network   %s\n", fields(o.Network))
	fmt.Fprintf(&b, "disk      %s\n", fields(o.Disk))
	fmt.Fprintf(&b, "clock     %s\n", fields(o.Clock))
	fmt.Fprintf(&b, "faults    %s\n", fields(o.Faults))
	fmt.Fprintf(&b, "load      %s\n", fields(o.Load))
	for i := range o.Work {
		fmt.Fprintf(&b, "work      %s\n", fields(o.Work[i]))
	}
	fmt.Fprintf(&b, "harm      %s\n", fields(o.Harm))
	fmt.Fprintf(&b, "operator  %s\n", fields(o.Operator))
	fmt.Fprintf(&b, "choices   %v\n", o.Choices) // fmt sorts by site
	fmt.Fprintf(&b, "journal   %s\n", cmp.Or(o.Journal.Name, "simulated"))
	return b.String()
}

// fields prints a struct as name:value pairs without its braces.
func fields(v any) string { return strings.Trim(fmt.Sprintf("%+v", v), "{}") }

// FromSeed draws a run's options: which faults, how often, how large a
// cluster, how tight its limits. Limits are tiny, so that rare paths are
// daily bread.
func FromSeed(seed uint64) Options {
	s := newStream(seed, "options")
	o := Options{
		Seed:         seed,
		Nodes:        pick(s, 1, 3, 3, 3, 3, 3, 5, 5),
		Coordinators: pick[uint32](s, 1, 2, 3),
		Safety:       40 * time.Second,
		Liveness:     60 * time.Second,
	}
	drawTopics(s, &o)
	drawTiming(s, &o)
	drawLimits(s, &o)
	drawWeather(s, &o)
	drawFaults(s, &o)
	drawLoad(s, &o)
	o.Load.Rivals = pick(newStream(seed, "options rivals"), 0, 0, 0, 1)
	o.Load.Keepers = pick(newStream(seed, "options keepers"), 0, 0, 1)
	drawFilters(newStream(seed, "options filters"), &o)
	drawHarm(newStream(seed, "options harm"), &o)
	drawOperator(newStream(seed, "options operator"), &o)
	o.Choices = drawChoices(newStream(seed, "options choices"))
	drawWork(newStream(seed, "options work"), &o)
	return o
}

// Light is a calm cluster with little to do: three nodes, four partitions, five
// publishes a second, heartbeats stretched. It measures what idle time costs.
func Light(safety time.Duration) Options {
	ms := time.Millisecond
	return Options{Seed: 1, Nodes: 3, Coordinators: 1, Safety: safety, Liveness: time.Minute,
		Topics:  []TopicOptions{{Name: "orders", Partitions: 4, Replicas: 3}},
		Timing:  core.Timing{Heartbeat: 500 * ms, Election: 2 * time.Second, MarkAfter: time.Second},
		Limits:  core.Limits{FreeLow: 1, FreeHigh: 2},
		Network: NetworkOptions{MinDelay: ms, MaxDelay: 2 * ms, ClientMinDelay: ms, ClientMaxDelay: 2 * ms},
		Disk:    DiskOptions{MinSync: ms, MaxSync: 2 * ms, MinWrite: ms, MaxWrite: 2 * ms},
		Load: LoadOptions{Operations: int(5 * safety / time.Second), Keys: 8, Producers: 1, Subscriptions: 1,
			Consumers: 0, Payload: 100, Session: 10 * time.Second},
	}
}

func drawTopics(s *stream, o *Options) {
	for _, name := range []string{"orders", "quiet"}[:pick(s, 1, 1, 2)] {
		t := TopicOptions{Name: name, Partitions: pick[uint32](s, 1, 2, 3), Replicas: 1}
		replicas := pick[uint32](s, 3, 3, 3, 5, 1)
		if replicas <= uint32(o.Nodes) {
			t.Replicas = replicas
		} else if o.Nodes >= 3 {
			t.Replicas = 3
		}
		t.RetentionTime = pick(s, 0, 0, 0, 0, 0, 15*time.Second)
		t.RetentionBytes = pick[uint64](s, 0, 0, 0, 0, 0, 20_000)
		o.Topics = append(o.Topics, t)
	}
}

// drawTiming stretches heartbeats: an idle group costs events in proportion.
func drawTiming(s *stream, o *Options) {
	beat := s.between(75*time.Millisecond, 250*time.Millisecond)
	o.Timing = core.Timing{
		Heartbeat:       beat,
		Election:        4 * beat,
		ReadIndexWait:   2 * time.Second,
		TryTimeout:      time.Second,
		MarkAfter:       s.between(20*time.Millisecond, time.Second),
		CheckpointAfter: pick(s, 3*time.Second, 10*time.Second, time.Minute),
		ScrubEvery:      7 * time.Second,
	}
}

func drawLimits(s *stream, o *Options) {
	o.Limits = core.Limits{
		WindowEntries:    pick(s, 4, 16, 64, 4096),
		WindowBytes:      pick(s, 4<<10, 64<<10, 4<<20),
		InflightMessages: pick(s, 1, 2, 8, 64),
		InflightBytes:    pick(s, 16<<10, 256<<10, 8<<20),
		UncommittedBytes: pick(s, 16<<10, 256<<10, 16<<20),
		HotBytes:         pick(s, 1<<10, 16<<10, 4<<20),
		CheckpointBytes:  int64(pick(s, 16<<10, 128<<10, 1<<20)),
		SegmentBytes:     int64(pick(s, 2<<10, 16<<10, 256<<10)),
		SegmentAge:       pick(s, 5*time.Second, time.Hour),
		FreeLow:          1, FreeHigh: 2,
	}
	o.Limits.SegmentQueueBytes = 4 * o.Limits.SegmentBytes
}

func drawWeather(s *stream, o *Options) {
	o.Network = NetworkOptions{
		MinDelay: 200 * time.Microsecond, MaxDelay: s.between(time.Millisecond, 40*time.Millisecond),
		Loss: pick[Rate](s, 0, 0, 10, 200), Duplicate: pick[Rate](s, 0, 0, 50, 300),
		Reorder: pick[Rate](s, 0, 0, 100, 1000), Burst: pick[Rate](s, 0, 20, 200),
		ClientMinDelay: 100 * time.Microsecond, ClientMaxDelay: s.between(time.Millisecond, 20*time.Millisecond),
		ClientLossOfRequest: pick[Rate](s, 0, 20, 200), ClientLossOfReply: pick[Rate](s, 0, 20, 300),
	}
	o.Disk = DiskOptions{
		MinSync: 100 * time.Microsecond, MaxSync: s.between(time.Millisecond, 20*time.Millisecond),
		MinWrite: 20 * time.Microsecond, MaxWrite: s.between(100*time.Microsecond, 10*time.Millisecond),
		Stall: pick[Rate](s, 0, 10, 100), StallFor: s.between(50*time.Millisecond, 500*time.Millisecond),
		TornTail: pick[Rate](s, 0, 5000, 9000),
	}
	o.Clock = ClockOptions{
		MaxOffset: pick(s, 0, 50*time.Millisecond, 10*time.Second),
		MaxDrift:  pick[int64](s, 0, 100, 5000),
	}
}

// often draws a mean time between strikes, or never.
func often(s *stream, lo, hi time.Duration) time.Duration {
	if d := s.between(lo, hi); s.IntN(2) == 0 {
		return d
	}
	return 0
}

func drawFaults(s *stream, o *Options) {
	second := time.Second
	f := &o.Faults
	f.Crash, f.CrashFor = often(s, 4*second, 20*second), s.between(second/10, 4*second)
	f.Pause, f.PauseFor = often(s, 3*second, 15*second), s.between(second/10, 3*second)
	f.PowerCut = often(s, 15*second, 40*second)
	f.Cut, f.CutFor = often(s, 3*second, 15*second), s.between(second/10, 5*second)
	f.OneWay, f.OneWayFor = often(s, 3*second, 15*second), s.between(second/10, 5*second)
	f.Isolate, f.IsolateFor = often(s, 5*second, 15*second), s.between(second/10, 5*second)
	f.Hold, f.HoldFor = often(s, 3*second, 15*second), s.between(second/10, 3*second)
	f.Reset = often(s, second, 10*second)
	f.SlowDisk, f.SlowFor = often(s, 3*second, 15*second), s.between(second/10, 3*second)
	f.Jump, f.MaxJump = often(s, 3*second, 15*second), pick(s, second, 20*second)
	f.AimAtLeader = pick[Rate](s, 0, 5000, 9000)
}

func drawLoad(s *stream, o *Options) {
	o.Load = LoadOptions{
		Operations: 2000,
		Keys:       pick(s, 1, 4, 16),
		Producers:  pick(s, 1, 2, 3), Plain: pick(s, 0, 1),
		Subscriptions: pick(s, 1, 2), Consumers: pick(s, 1, 2, 3), Raw: pick(s, 0, 1, 2),
		Readers: pick(s, 0, 1), Seekers: pick(s, 0, 1), Describers: pick(s, 0, 1),
		Payload: pick(s, 16, 200, 2000),
		Session: pick(s, time.Second, 2*time.Second, 5*time.Second),
		Restart: pick[Rate](s, 0, 20, 100),
	}
}
