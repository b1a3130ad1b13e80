package partition

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/group/grouptest"
	"github.com/tapedeck/tapedeck/core/model"
)

// pair is two replicas of one partition over one log, one of them leading, and
// producers that send each of their batches again until they hear of it.
type pair struct {
	hosts   [2]*grouptest.Host
	at      int // the leader
	senders []*sender
	told    map[model.Offset]string // message by offset, as a publisher was told
	stored  int                     // messages known to be stored
}

// sender is an idempotent producer with up to 3 batches under way.
type sender struct {
	id      model.ProducerID
	epoch   model.Epoch
	next    model.Sequence
	sent    []batch.View // not acknowledged, in order
	waiting map[group.Ref]int
	acked   int
}

func newPair(rt *rapid.T) *pair {
	limits := Limits{
		HotBytes:     rapid.IntRange(1, 2000).Draw(rt, "hot"),
		SegmentBytes: rapid.Int64Range(200, 2000).Draw(rt, "segment"),
		SegmentAge:   time.Minute, Waiting: 20,
	}
	p := &pair{told: map[model.Offset]string{}}
	for i := range p.hosts {
		p.hosts[i] = grouptest.New(New(Config{Topic: testTopic, Limits: limits}))
		putTopic(p.hosts[i], 1, model.TopicSettings{RetentionTime: time.Hour})
		p.hosts[i].WallNow += model.Wall(i) * model.Wall(time.Second) // clocks differ
	}
	p.hosts[1].Log = p.hosts[0].Log
	for i := range 2 {
		p.senders = append(p.senders, &sender{id: model.ProducerID(i + 1), epoch: 1, waiting: map[group.Ref]int{}})
	}
	p.leader().Lead()
	return p
}

func (p *pair) leader() *grouptest.Host { return p.hosts[p.at] }

func name(v batch.View, i int) string {
	return fmt.Sprintf("%d.%d.%d", v.Producer(), v.Epoch(), int(v.Sequence())+i)
}

// send makes a new batch, or sends one again that is not acknowledged.
func (p *pair) send(rt *rapid.T) {
	s := rapid.SampledFrom(p.senders).Draw(rt, "sender")
	if len(s.sent) < 3 && rapid.Bool().Draw(rt, "new") {
		n := rapid.IntRange(1, 3).Draw(rt, "count")
		s.sent = append(s.sent, messages(n, from(s.id, s.epoch, s.next)))
		s.next += model.Sequence(n)
	}
	if len(s.sent) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.sent)-1).Draw(rt, "which")
	s.waiting[p.leader().Call(&call.Append{Batch: s.sent[i].Clone()})] = s.acked + i
}

// hear takes answers in: a gap may be answered when an earlier batch was lost,
// anything else must be an offset or a retryable error.
func (p *pair) hear(rt *rapid.T) {
	h := p.leader()
	for _, s := range p.senders {
		for ref, number := range s.waiting {
			a, ok := h.Answers[ref]
			if !ok {
				continue
			}
			delete(s.waiting, ref)
			if a.Err != nil {
				if !a.Err.Retryable() && a.Err.Reason != model.ReasonSequenceGap &&
					a.Err.Reason != model.ReasonSequenceUnknown {
					rt.Fatalf("producer %d: %v", s.id, a.Err)
				}
				continue
			}
			p.tell(rt, s, number, a.Resp.(*call.Appended).Base)
		}
	}
}

// tell notes that a batch was given offsets; the same one always the same.
func (p *pair) tell(rt *rapid.T, s *sender, number int, base model.Offset) {
	if number < s.acked {
		return // its twin was heard of before, and checked
	}
	// All before it are stored, too: a gap is refused.
	v := s.sent[number-s.acked]
	for i := range int(v.Count()) {
		o := base + model.Offset(i)
		if old, ok := p.told[o]; ok && old != name(v, i) {
			rt.Fatalf("offset %d was given to %s and to %s", o, old, name(v, i))
		}
		p.told[o] = name(v, i)
	}
	if number == s.acked {
		s.sent, s.acked = s.sent[1:], s.acked+1
	}
}

// fail makes the other replica lead. What was under way is committed in part.
func (p *pair) fail(rt *rapid.T) {
	h := p.leader()
	h.StepDown()
	h.Commit(rapid.IntRange(0, h.Pending()).Draw(rt, "kept"))
	h.Lose()
	p.hear(rt)
	for _, s := range p.senders {
		clear(s.waiting)
	}
	p.at = 1 - p.at
	next := p.leader()
	next.Term = h.Term
	next.Lead()
}

// restart replaces the replica that does not lead by one from its snapshot.
func (p *pair) restart(rt *rapid.T) {
	f := p.hosts[1-p.at]
	old := f.Machine.(*Machine)
	m := New(old.cfg)
	if err := m.Restore(old.Snapshot()); err != nil {
		rt.Fatal(err)
	}
	f.Machine = m
}

func (p *pair) clock(rt *rapid.T) {
	for _, h := range p.hosts {
		h.WallNow += model.Wall(rapid.Int64Range(-2e9, 2e9).Draw(rt, "jump"))
		h.Trusted = rapid.Bool().Draw(rt, "trusted")
		h.Advance(time.Duration(rapid.Int64Range(0, 100e9).Draw(rt, "advance")))
	}
}

// read holds a read on either replica to what publishers were told.
func (p *pair) read(rt *rapid.T) {
	h := p.hosts[rapid.IntRange(0, 1).Draw(rt, "replica")]
	m := h.Machine.(*Machine)
	if m.LogStart() == m.Next() {
		return
	}
	o := model.Offset(rapid.Uint64Range(uint64(m.LogStart()), uint64(m.Next())-1).Draw(rt, "offset"))
	ref := h.Call(&call.Read{Offset: o, MaxBytes: uint32(rapid.IntRange(1, 1000).Draw(rt, "bytes"))})
	h.FinishReads()
	a, ok := h.Answers[ref]
	if !ok || a.Err != nil {
		rt.Fatalf("read at %d: %+v", o, a)
	}
	list, err := batch.Split(a.Resp.(*call.ReadResult).Run)
	if err != nil || list[0].Base() > o || list[0].Next() <= o || list[len(list)-1].Next() > m.Next() {
		rt.Fatalf("read at %d gave %d batches from %d, %v", o, len(list), list[0].Base(), err)
	}
	for _, v := range list {
		for i := range int(v.Count()) {
			if told, ok := p.told[v.Base()+model.Offset(i)]; ok && told != name(v, i) {
				rt.Fatalf("offset %d holds %s; the publisher of %s was given it", v.Base(), name(v, i), told)
			}
		}
	}
}

// check holds the log to its promises, and replicas at the same entry to the same state.
func (p *pair) check(rt *rapid.T) {
	seen := map[string]model.Offset{}
	var next model.Offset
	var last model.Wall
	sequences := map[model.ProducerID]model.Sequence{}
	for _, e := range p.leader().Log.Entries {
		if !isBatch(e.Data) {
			continue
		}
		v, err := batch.Parse(e.Data)
		if err != nil || v.Base() != next || v.AppendTime() < last {
			rt.Fatalf("batch at %d, time %d, follows %d, %d: %v", v.Base(), v.AppendTime(), next, last, err)
		}
		next, last = v.Next(), v.AppendTime()
		if v.Sequence() != sequences[v.Producer()] {
			rt.Fatalf("producer %d's sequence %d follows %d", v.Producer(), v.Sequence(), sequences[v.Producer()])
		}
		sequences[v.Producer()] += model.Sequence(v.Count())
		for i := range int(v.Count()) {
			if at, ok := seen[name(v, i)]; ok {
				rt.Fatalf("message %s is at %d and at %d", name(v, i), at, v.Base())
			}
			seen[name(v, i)] = v.Base() + model.Offset(i)
		}
	}
	for o, n := range p.told {
		if at, ok := seen[n]; !ok || at != o {
			rt.Fatalf("%s was told offset %d; it is at %d, %t", n, o, at, ok)
		}
	}
	a, b := p.hosts[0].Machine.(*Machine), p.hosts[1].Machine.(*Machine)
	if l := p.leader().Machine.(*Machine); l.Next() != next {
		rt.Fatalf("next is %d, the log ends at %d", l.Next(), next)
	}
	if p.hosts[0].Applied == p.hosts[1].Applied && a.Hash() != b.Hash() {
		rt.Fatalf("replicas differ at entry %d", p.hosts[0].Applied)
	}
}

func TestReplicasAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPair(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"send": p.send, "send more": p.send, "hear": p.hear, "fail": p.fail,
			"restart": p.restart, "clock": p.clock, "read": p.read,
			"commit": func(rt *rapid.T) {
				p.leader().Commit(rapid.IntRange(0, p.leader().Pending()).Draw(rt, "n"))
				p.hear(rt)
			},
			"catch up": func(*rapid.T) { p.hosts[1-p.at].CatchUp() },
			"drop":     func(*rapid.T) { p.leader().DropProposals = !p.leader().DropProposals },
			"":         p.check,
		})
		// Once nothing fails, every batch gets through, in order.
		p.leader().DropProposals = false
		p.leader().Settle()
		p.hear(rt)
		for _, s := range p.senders {
			for len(s.sent) > 0 {
				resp, err := p.leader().Do(&call.Append{Batch: s.sent[0].Clone()})
				if err != nil {
					rt.Fatalf("in peace: %v", err)
				}
				p.tell(rt, s, s.acked, resp.(*call.Appended).Base)
			}
		}
		p.hosts[1-p.at].CatchUp()
		p.check(rt)
	})
}
