package sim

import (
	"fmt"
	"slices"
	"time"
)

// Size is what a run is made of, as far as shrinking it goes.
type Size struct {
	Clients, Operations, Faults, Nodes, Partitions, Commands int

	Time time.Duration // of the safety phase
}

// String is one line.
func (s Size) String() string {
	return fmt.Sprintf("clients %d · client operations %d · faults %d · nodes %d · partitions %d · time %v · commands %d",
		s.Clients, s.Operations, s.Faults, s.Nodes, s.Partitions, s.Time.Round(time.Millisecond), s.Commands)
}

// SizeOf measures a run of planned options.
func SizeOf(o Options, r *Result) Size {
	l := &o.Load
	s := Size{Operations: r.Operations, Faults: len(o.Strikes), Nodes: o.Nodes, Time: o.Safety,
		Commands: len(o.Scenario()) + 1}
	for _, t := range o.Topics {
		s.Partitions += int(t.Partitions)
	}
	s.Clients = len(o.Topics) * (l.Producers + l.Plain + l.Readers + 2*l.Rivals +
		l.Subscriptions*(l.Consumers+l.Raw+l.Seekers+l.Describers+l.Keepers))
	for _, w := range o.Work {
		s.Clients += w.Workers + w.Consumers + w.Seekers
	}
	return s
}

// Shrinker makes a failing run smaller, as long as it comes to the same finding.
// It tries changes in a fixed order and takes each that holds, so equal runs
// shrink equally; Tries bounds the runs.
type Shrinker struct {
	Tries   int
	Finding string
	Best    Options
	Result  Result
	// Note takes a line per change that held; nil: none.
	Note func(line string)
}

// Shrink returns a smaller run of planned options whose run r came to a finding.
func (s *Shrinker) Shrink() {
	for {
		before := SizeOf(s.Best, &s.Result)
		s.time()
		s.strikes()
		s.load()
		s.cluster()
		s.knobs()
		s.strikes()
		s.simplify()
		if after := SizeOf(s.Best, &s.Result); after == before || s.Tries <= 0 {
			return
		}
	}
}

// try runs a changed copy and keeps it if it finds the same.
func (s *Shrinker) try(what string, change func(o *Options)) bool {
	o := s.Best.clone()
	change(&o)
	if s.Tries <= 0 || slices.Equal(o.Scenario(), s.Best.Scenario()) {
		return false
	}
	s.Tries--
	r := Run(o, nil)
	if r.Finding() != s.Finding {
		return false
	}
	s.Best, s.Result = o, r
	if s.Note != nil {
		s.Note(fmt.Sprintf("%-24s %s", what, SizeOf(o, &r)))
	}
	return true
}

// time shortens the safety phase, and drops the strikes that would come later.
func (s *Shrinker) time() {
	for _, share := range []time.Duration{1, 2, 4, 6, 7} {
		d := (s.Best.Safety * share / 8).Round(100 * time.Millisecond)
		if d > 0 && s.try("shorter", func(o *Options) {
			o.Safety = d
			o.Load.Operations = max(1, o.Load.Operations*int(share)/8) // at the same rate
			o.Strikes = slices.DeleteFunc(o.Strikes, func(k Strike) bool { return k.At > d })
		}) {
			return
		}
	}
}

// strikes drops faults: halves, then quarters, and so on down to single ones.
func (s *Shrinker) strikes() {
	if len(s.Best.Strikes) > 0 && s.try("no faults", func(o *Options) { o.Strikes = nil }) {
		return
	}
	for size := (len(s.Best.Strikes) + 1) / 2; size > 0; {
		held := false
		for at := 0; at < len(s.Best.Strikes); {
			to := min(at+size, len(s.Best.Strikes))
			if s.try(fmt.Sprintf("%d faults fewer", to-at), func(o *Options) {
				o.Strikes = slices.Delete(o.Strikes, at, to)
			}) {
				held = true
				continue
			}
			at = to
		}
		if size == 1 && !held {
			return
		}
		size = max(1, min(size/2, len(s.Best.Strikes)))
		if len(s.Best.Strikes) == 0 {
			return
		}
	}
}

// work drops subscriptions judged message by message, and their members.
func (s *Shrinker) work() {
	for i := len(s.Best.Work) - 1; i >= 0; i-- {
		if s.try("a subscription fewer", func(o *Options) { o.Work = slices.Delete(o.Work, i, i+1) }) {
			continue
		}
		s.try("no seeker", func(o *Options) { o.Work[i].Seekers = 0 })
		s.try("no consumer", func(o *Options) { o.Work[i].Consumers = 0 })
		s.try("one worker", func(o *Options) { o.Work[i].Workers = min(o.Work[i].Workers, 1) })
	}
}

// load drops clients, then what those that are left do.
func (s *Shrinker) load() {
	s.work()
	counts := func(o *Options) map[string]*int {
		l := &o.Load
		return map[string]*int{"producers": &l.Producers, "plain producers": &l.Plain, "subscriptions": &l.Subscriptions,
			"consumers": &l.Consumers, "raw consumers": &l.Raw, "readers": &l.Readers, "seekers": &l.Seekers,
			"describers": &l.Describers, "keepers": &l.Keepers, "rivals": &l.Rivals}
	}
	for _, name := range []string{"keepers",
		"seekers", "describers", "readers", "rivals", "raw consumers", "plain producers",
		"consumers", "subscriptions", "producers"} {
		for _, n := range []int{0, 1} {
			if *counts(&s.Best)[name] > n && s.try(fmt.Sprintf("%s %d", name, n), func(o *Options) {
				*counts(o)[name] = n
			}) {
				break
			}
		}
	}
	for _, stop := range []int{5, 10, 20, 40, 80, 160, 320, 640, 1280} {
		if s.Best.Load.Stop > 0 && stop >= s.Best.Load.Stop || stop >= s.Result.Operations {
			break
		}
		if s.try("fewer operations", func(o *Options) { o.Load.Stop = stop }) {
			break
		}
	}
	for _, n := range []int{20, 50, 100, 200, 500, 1000} {
		if n < s.Best.Load.Operations && s.try("fewer operations", func(o *Options) { o.Load.Operations = n }) {
			break
		}
	}
}

// cluster drops topics, partitions, replicas, coordinators and nodes.
func (s *Shrinker) cluster() {
	for len(s.Best.Topics) > 1 && (s.try("a topic fewer", func(o *Options) { o.Topics = o.Topics[:1] }) ||
		s.try("a topic fewer", func(o *Options) { o.Topics = o.Topics[1:] })) {
	}
	for i := range s.Best.Topics {
		s.try("one partition", func(o *Options) { o.Topics[i].Partitions = 1 })
		s.try("nothing expires", func(o *Options) { o.Topics[i].RetentionTime, o.Topics[i].RetentionBytes = 0, 0 })
		for _, n := range []uint32{1, 3} {
			if n < s.Best.Topics[i].Replicas && s.try(fmt.Sprintf("%d replicas", n), func(o *Options) {
				o.Topics[i].Replicas = n
			}) {
				break
			}
		}
	}
	s.try("one coordinator", func(o *Options) { o.Coordinators = 1 })
	for _, n := range []int{1, 3} {
		if n < s.Best.Nodes && s.try(fmt.Sprintf("%d nodes", n), func(o *Options) { o.Nodes = n; o.fit() }) {
			return
		}
	}
}

// fit makes topics and strikes fit the nodes there are.
func (o *Options) fit() {
	for i := range o.Topics {
		o.Topics[i].Replicas = min(o.Topics[i].Replicas, uint32(o.Nodes))
	}
	there := func(name string) bool {
		for i := range o.Nodes {
			if name == fmt.Sprintf("n%d", i+1) {
				return true
			}
		}
		return name == ""
	}
	o.Strikes = slices.DeleteFunc(o.Strikes, func(k Strike) bool {
		return !there(string(k.Node)) || !there(string(k.Peer))
	})
}

// knobs turns each concern, and then each of its options, to what it is in calm.
func (s *Shrinker) knobs() {
	for i, g := range s.Best.knobs() {
		if g.name == "load" {
			continue
		}
		if s.try("calm "+g.name, func(o *Options) { o.toCalm(i, -1) }) {
			continue
		}
		for j := range g.knobs {
			s.try("calm "+g.knobs[j].name, func(o *Options) { o.toCalm(i, j) })
		}
	}
	for j, k := range s.Best.loadKnobs() {
		switch k.name {
		case "keys", "payload", "session", "restart":
			at := slices.IndexFunc(s.Best.knobs(), func(g knobGroup) bool { return g.name == "load" })
			s.try("calm "+k.name, func(o *Options) { o.toCalm(at, j) })
		}
	}
}

// toCalm turns one knob of a group, or all of it, to what it is in calm.
func (o *Options) toCalm(group, knob int) {
	calm := Calm(o.Seed)
	from := calm.knobs()[group].knobs
	for j, k := range o.knobs()[group].knobs {
		if knob < 0 || j == knob {
			if err := k.set(from[j].get()); err != nil {
				panic(err) // what get prints, set reads
			}
		}
	}
}

// simplify makes what is left easy to read: round times, plain crashes.
func (s *Shrinker) simplify() {
	for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond} {
		if s.try("round times", func(o *Options) {
			for i := range o.Strikes {
				k := &o.Strikes[i]
				k.At = k.At.Round(unit)
				if k.For > 0 {
					k.For = max(unit, k.For.Round(unit))
				}
				if k.By != 0 {
					k.By = k.By.Round(unit)
				}
			}
		}) {
			break
		}
	}
	for i := range s.Best.Strikes {
		s.try("a plain crash", func(o *Options) {
			if k := &o.Strikes[i]; len(k.Unsynced) > 0 {
				k.Again, k.Unsynced = false, []string{string(loseUnsynced)}
			}
		})
	}
}
