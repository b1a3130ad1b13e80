package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tapedeck/tapedeck/core/choice"
)

// knob is one option by name, as text.
type knob struct {
	name string
	get  func() string
	set  func(string) error
}

// knobGroup is one concern's options: a command of the scenario language.
type knobGroup struct {
	name  string
	knobs []knob
}

func durationKnob(name string, v *time.Duration) knob {
	return knob{name, v.String, func(s string) (err error) {
		if *v, err = time.ParseDuration(s); err != nil {
			return fmt.Errorf("%q is not a duration with a unit, such as 200ms or 2s", s)
		}
		return nil
	}}
}

func numberKnob[T ~int | ~int64 | ~uint64 | ~uint32](name string, v *T) knob {
	return knob{name, func() string { return fmt.Sprint(*v) }, func(s string) error {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil || uint64(T(n)) != n {
			return fmt.Errorf("%q is not a number", s)
		}
		*v = T(n)
		return nil
	}}
}

// knobs are the options but for cluster, topics and strikes, by concern.
func (o *Options) knobs() []knobGroup {
	return []knobGroup{
		{"timing", o.timingKnobs()}, {"limits", o.limitKnobs()}, {"network", o.networkKnobs()},
		{"disks", o.diskKnobs()}, {"clocks", o.clockKnobs()}, {"load", o.loadKnobs()},
		{"harm", []knob{numberKnob("replay", &o.Harm.Replay), durationKnob("full", &o.Harm.Full),
			durationKnob("fail_for", &o.Harm.FailFor)}},
		{"operator", o.operatorKnobs()}, {"choices", o.choiceKnobs()},
	}
}

func (o *Options) timingKnobs() []knob {
	t := &o.Timing
	return []knob{durationKnob("heartbeat", &t.Heartbeat), durationKnob("election", &t.Election),
		durationKnob("read_index_wait", &t.ReadIndexWait), durationKnob("try_timeout", &t.TryTimeout),
		durationKnob("mark_after", &t.MarkAfter), durationKnob("checkpoint_after", &t.CheckpointAfter),
		durationKnob("scrub_every", &t.ScrubEvery)}
}

func (o *Options) limitKnobs() []knob {
	l := &o.Limits
	return []knob{numberKnob("window_entries", &l.WindowEntries), numberKnob("window_bytes", &l.WindowBytes),
		numberKnob("inflight_messages", &l.InflightMessages), numberKnob("inflight_bytes", &l.InflightBytes),
		numberKnob("uncommitted_bytes", &l.UncommittedBytes), numberKnob("hot_bytes", &l.HotBytes),
		numberKnob("checkpoint_bytes", &l.CheckpointBytes), numberKnob("segment_bytes", &l.SegmentBytes),
		durationKnob("segment_age", &l.SegmentAge), numberKnob("free_low", &l.FreeLow),
		numberKnob("free_high", &l.FreeHigh), numberKnob("segment_queue_bytes", &l.SegmentQueueBytes)}
}

func (o *Options) networkKnobs() []knob {
	n := &o.Network
	return []knob{durationKnob("min_delay", &n.MinDelay), durationKnob("max_delay", &n.MaxDelay),
		numberKnob("loss", &n.Loss), numberKnob("duplicate", &n.Duplicate), numberKnob("reorder", &n.Reorder),
		numberKnob("burst", &n.Burst), durationKnob("client_min_delay", &n.ClientMinDelay),
		durationKnob("client_max_delay", &n.ClientMaxDelay), numberKnob("client_loss_of_request", &n.ClientLossOfRequest),
		numberKnob("client_loss_of_reply", &n.ClientLossOfReply)}
}

func (o *Options) diskKnobs() []knob {
	d := &o.Disk
	return []knob{durationKnob("min_sync", &d.MinSync), durationKnob("max_sync", &d.MaxSync),
		durationKnob("min_write", &d.MinWrite), durationKnob("max_write", &d.MaxWrite),
		numberKnob("stall", &d.Stall), durationKnob("stall_for", &d.StallFor), numberKnob("torn_tail", &d.TornTail)}
}

func (o *Options) clockKnobs() []knob {
	return []knob{durationKnob("max_offset", &o.Clock.MaxOffset), numberKnob("max_drift", &o.Clock.MaxDrift)}
}

func (o *Options) loadKnobs() []knob {
	l := &o.Load
	return []knob{numberKnob("operations", &l.Operations), numberKnob("stop", &l.Stop), numberKnob("keys", &l.Keys),
		numberKnob("producers", &l.Producers), numberKnob("plain", &l.Plain),
		numberKnob("subscriptions", &l.Subscriptions), numberKnob("consumers", &l.Consumers), numberKnob("raw", &l.Raw),
		numberKnob("readers", &l.Readers), numberKnob("seekers", &l.Seekers), numberKnob("describers", &l.Describers),
		numberKnob("keepers", &l.Keepers),
		numberKnob("rivals", &l.Rivals), numberKnob("payload", &l.Payload), durationKnob("session", &l.Session),
		numberKnob("restart", &l.Restart), numberKnob("filtered", &l.Filtered), numberKnob("wanted", &l.Wanted),
		numberKnob("filter", &l.Filter)}
}

func (o *Options) operatorKnobs() []knob {
	p := &o.Operator
	return []knob{durationKnob("move", &p.Move), durationKnob("transfer", &p.Transfer), durationKnob("drain", &p.Drain),
		durationKnob("drain_for", &p.DrainFor), durationKnob("join", &p.Join), durationKnob("join_for", &p.JoinFor),
		durationKnob("topic", &p.Topic), durationKnob("topic_for", &p.TopicFor),
		durationKnob("partitions", &p.Partitions), durationKnob("retention", &p.Retention)}
}

// choiceKnobs are the sites of core/choice, with one in how many takes the rare way.
func (o *Options) choiceKnobs() (knobs []knob) {
	for _, site := range slices.Sorted(maps.Keys(choice.Sites())) {
		knobs = append(knobs, knob{string(site), func() string { return uitoa(o.Choices[site]) }, func(s string) error {
			n, err := strconv.ParseUint(s, 10, 64)
			switch {
			case err != nil:
				return fmt.Errorf("%q is not a number", s)
			case n == 0:
				delete(o.Choices, site)
			case o.Choices == nil:
				o.Choices = Choices{site: n}
			default:
				o.Choices[site] = n
			}
			return nil
		}})
	}
	return knobs
}

// Calm is a run of three nodes in which nothing happens by chance and nobody does
// anything: what a scenario's swarm is without its other commands.
func Calm(seed uint64) Options {
	ms := time.Millisecond
	o := Options{Seed: seed, Nodes: 3, Coordinators: 1, Planned: true, Safety: 40 * time.Second, Liveness: time.Minute,
		Network: NetworkOptions{MinDelay: ms, MaxDelay: ms, ClientMinDelay: ms / 2, ClientMaxDelay: ms / 2},
		Disk:    DiskOptions{MinSync: ms, MaxSync: ms, MinWrite: ms / 10, MaxWrite: ms / 10},
		Load:    LoadOptions{Operations: 2000, Keys: 1, Payload: 16, Session: 5 * time.Second},
	}
	o.Limits.FreeLow, o.Limits.FreeHigh = 1, 2
	return o
}

// Scenario is the options as the commands of a scenario, a line each.
func (o *Options) Scenario() []string {
	calm := Calm(o.Seed)
	w := words{"swarm"}
	w.named("seed", uitoa(o.Seed))
	w.named("nodes", itoa(o.Nodes))
	w.named("coordinators", uitoa(uint64(o.Coordinators)))
	w.named("safety", o.Safety.String())
	w.named("liveness", o.Liveness.String())
	lines := []string{w.String()}
	for i := range o.Topics {
		lines = append(lines, o.Topics[i].command())
	}
	for i := range o.Work {
		lines = append(lines, o.Work[i].command())
	}
	with := calm.knobs()
	for i, g := range o.knobs() {
		w := words{g.name}
		for j := range g.knobs {
			if k := &g.knobs[j]; k.get() != with[i].knobs[j].get() {
				w.named(k.name, k.get())
			}
		}
		if len(w) > 1 {
			lines = append(lines, w.String())
		}
	}
	for i := range o.Strikes {
		lines = append(lines, o.Strikes[i].String())
	}
	return lines
}

func (t *TopicOptions) command() string {
	w := words{"topic", t.Name}
	w.named("partitions", uitoa(uint64(t.Partitions)))
	w.named("replicas", uitoa(uint64(t.Replicas)))
	if t.RetentionTime > 0 {
		w.named("retention", t.RetentionTime.String())
	}
	if t.RetentionBytes > 0 {
		w.named("bytes", uitoa(t.RetentionBytes))
	}
	return w.String()
}

// clone is a copy that shares nothing that a change would reach.
func (o *Options) clone() Options {
	c := *o
	c.Work = slices.Clone(o.Work)
	c.Topics, c.Strikes, c.Choices = slices.Clone(o.Topics), slices.Clone(o.Strikes), maps.Clone(o.Choices)
	return c
}

// Knobs are the names of all options that a swarm can set.
func Knobs() (names []string) {
	for _, g := range new(Options).knobs() {
		for _, k := range g.knobs {
			names = append(names, k.name)
		}
	}
	return names
}
