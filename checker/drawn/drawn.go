// Package drawn makes histories to try the checker on: what clients of a broker
// without a fault would have called and been answered.
//
// It owns their shape: one topic with the partitions asked for, fifty clients,
// publishes with retries, fetches, and two subscriptions whose members come, go
// and rewind. The same seed and sizes give the same history. Moments are
// nanoseconds, a thousand from one call to the next.
package drawn

import (
	"math/rand/v2"
	"strconv"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/model"
)

// History makes a correct history of n operations or a few more: publishes
// with retries, fetches, two subscriptions whose members come, go and rewind.
func History(seed uint64, n, partitions int) (*checker.History, checker.Final) {
	d := &drawer{r: rand.New(rand.NewPCG(seed, 2)), logs: make([]checker.FinalLog, partitions), h: &checker.History{}}
	for i := range d.logs {
		d.logs[i] = checker.FinalLog{Topic: "t", Partition: model.Partition(i)}
	}
	for _, name := range []string{"t/a", "t/b"} {
		d.add(checker.Op{Create: &checker.Create{Subscription: name}}, true)
		d.subs = append(d.subs, drawnSub{name: name, generation: 1, cursors: make([]model.Offset, partitions),
			members: make([]int, partitions), since: make([]model.Generation, partitions)})
	}
	for len(d.h.Ops) < n {
		switch k := d.r.IntN(100); {
		case k < 50:
			d.publish()
		case k < 60:
			d.fetch()
		default:
			d.consume(&d.subs[d.r.IntN(2)])
		}
	}
	final := checker.Final{Logs: d.logs}
	for _, s := range d.subs {
		f := checker.FinalSubscription{Subscription: s.name}
		for i, c := range s.cursors {
			f.Partitions = append(f.Partitions, checker.Cursor{Partition: model.Partition(i), Offset: c})
		}
		final.Subscriptions = append(final.Subscriptions, f)
	}
	return d.h, final
}

type drawer struct {
	r    *rand.Rand
	h    *checker.History
	now  checker.Moment
	logs []checker.FinalLog
	subs []drawnSub
	sent uint64
}

type drawnSub struct {
	name       string
	generation model.Generation
	cursors    []model.Offset
	members    []int
	since      []model.Generation
	pulls      uint64
}

// add appends an operation that takes effect about now.
func (d *drawer) add(op checker.Op, answered bool) {
	d.now += 1000
	op.Client = checker.ClientID(d.r.IntN(50))
	op.Call, op.Return, op.Outcome = d.now, d.now+checker.Moment(d.r.IntN(900)), checker.OutcomeOK
	if !answered {
		op.Return, op.Outcome = checker.Open, checker.OutcomeUnknown
	}
	d.h.Ops = append(d.h.Ops, op)
}

func (d *drawer) publish() {
	l := &d.logs[d.r.IntN(len(d.logs))]
	p := checker.Publish{Topic: "t", Partition: l.Partition, Producer: model.ProducerID(1 + l.Partition), Epoch: 1,
		Sequence: model.Sequence(l.HighWatermark), Offset: l.HighWatermark}
	for range 1 + d.r.IntN(3) {
		d.sent++
		p.Messages = append(p.Messages, checker.Published{Key: "key" + strconv.Itoa(d.r.IntN(1000)), Payload: d.sent})
		l.Messages = append(l.Messages, checker.LogMessage{Offset: l.HighWatermark, Payload: d.sent,
			AppendTime: model.Wall(d.now), Producer: p.Producer, Epoch: 1, Sequence: model.Sequence(l.HighWatermark)})
		l.HighWatermark++
	}
	if d.r.IntN(50) == 0 { // the answer is lost, the retry finds it there
		lost := p
		lost.Offset = 0
		d.add(checker.Op{Publish: &lost}, false)
		p.Duplicate = true
	}
	d.add(checker.Op{Publish: &p}, true)
}

func (d *drawer) take(l *checker.FinalLog, from model.Offset, partition model.Partition) (list []checker.Message) {
	for o := from; o < min(from+4, l.HighWatermark); o++ {
		m := l.Messages[o]
		list = append(list, checker.Message{Partition: partition, Offset: o, Payload: m.Payload,
			AppendTime: m.AppendTime})
	}
	return list
}

func (d *drawer) fetch() {
	l := &d.logs[d.r.IntN(len(d.logs))]
	from := l.HighWatermark - min(l.HighWatermark, model.Offset(d.r.IntN(20)))
	d.add(checker.Op{Fetch: &checker.Fetch{Topic: "t", Partition: l.Partition, Offset: from,
		Messages: d.take(l, from, 0), HighWatermark: l.HighWatermark, Fresh: true}}, true)
}

func (d *drawer) consume(s *drawnSub) {
	i := d.r.IntN(len(d.logs))
	part, log := model.Partition(i), &d.logs[i]
	switch k := d.r.IntN(1000); {
	case k == 0 && s.generation < 200: // rewind
		s.generation++
		s.cursors[i] -= min(s.cursors[i], 50)
		s.since[i] = s.generation
		c := checker.Cursor{Partition: part, Offset: s.cursors[i]}
		d.add(checker.Op{Seek: &checker.Seek{Subscription: s.name, To: checker.TargetOffsets,
			Offsets: []checker.Cursor{c}, Partitions: []model.Partition{part},
			Generation: s.generation, Cursors: []checker.Cursor{c}}}, true)
		return
	case k < 5: // another owner
		s.generation++
		s.members[i]++
		s.since[i] = s.generation
	}
	member := model.MemberID("m" + strconv.Itoa(s.members[i]))
	list := d.take(log, s.cursors[i], part)
	s.pulls++
	d.add(checker.Op{Pull: &checker.Pull{Subscription: s.name, Member: member, Sequence: s.pulls,
		Generation: s.generation, Messages: list}}, true)
	if n := len(list); n > 0 {
		s.cursors[i] = list[n-1].Offset + 1
		a := checker.Ack{Subscription: s.name, Member: member, Generation: s.generation, Partition: part,
			Next: s.cursors[i], Cursor: s.cursors[i]}
		d.add(checker.Op{Ack: &a}, d.r.IntN(20) != 0)
	}
}
