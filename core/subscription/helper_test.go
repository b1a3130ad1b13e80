package subscription

import (
	"testing"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group/grouptest"
	"github.com/tapedeck/tapedeck/core/model"
)

const (
	testGroup model.GroupID = 16
	ref                     = "orders/billing"
)

// bench is one coordinator under test, leading, and a follower that applies the
// same log.
type bench struct {
	*testing.T
	*grouptest.Host
	follower *grouptest.Host
	config   Config
	settings model.SubscriptionSettings
	nextID   model.SubscriptionID
}

func newBench(t *testing.T, partitions int) *bench {
	b := &bench{T: t, config: Config{Group: testGroup, MaxMembers: 8, Waiting: 64}}
	b.Host = grouptest.New(New(b.config))
	b.follower = grouptest.New(New(b.config))
	b.follower.Log = b.Host.Log
	b.follower.Cat = b.Host.Cat
	b.putTopic(partitions)
	b.create()
	b.Lead()
	return b
}

func (b *bench) putTopic(partitions int) {
	b.Cat.PutTopic(&model.Topic{ID: 1, Name: "orders", Partitions: make([]model.GroupID, partitions)})
}

func (b *bench) create(starts ...model.Offset) {
	b.nextID++
	b.Cat.PutSubscription(&model.Subscription{ID: b.nextID, Topic: 1, TopicName: "orders", Name: "billing",
		StartsAt: starts, Settings: b.settings, Coordinator: testGroup})
}

func (b *bench) machine() *Machine { return b.Host.Machine.(*Machine) }

func (b *bench) view() (v View) {
	b.machine().Each(func(id model.SubscriptionID, s View) {
		if id == b.nextID {
			v = s
		}
	})
	return v
}

func (b *bench) failover() {
	b.StepDown()
	b.takeOver()
}

// takeOver makes the follower the leader; what was not committed is lost.
func (b *bench) takeOver() {
	b.Host.Lose()
	b.follower.CatchUp()
	b.follower.Mono, b.follower.WakeAt = b.Mono, model.Never
	b.Host, b.follower = b.follower, b.Host
	b.Host.Lead()
}

func target() call.Target { return call.Target{Subscription: ref} }

func must[R call.Response](b *bench, req call.Request) R {
	b.Helper()
	resp, err := b.Do(req)
	if err != nil {
		b.Fatalf("%T: %v", req, err)
	}
	return resp.(R)
}

func (b *bench) fails(req call.Request, code model.Code, reason model.Reason) *model.Error {
	b.Helper()
	resp, err := b.Do(req)
	if err == nil || err.Code != code || err.Reason != reason {
		b.Fatalf("%T: got %+v, %+v; want code %d reason %q", req, resp, err, code, reason)
	}
	return err
}

func (b *bench) grant(m model.MemberID, sequence uint64) *call.Granted {
	b.Helper()
	return must[*call.Granted](b, &call.Grant{Target: target(), Member: m, PullSequence: sequence})
}

func (b *bench) deliver(m model.MemberID, g model.Generation, sequence uint64, ranges ...call.Range) *call.Delivered {
	b.Helper()
	return must[*call.Delivered](b, &call.Deliver{Target: target(), Member: m, Generation: g,
		PullSequence: sequence, Ranges: ranges})
}

func (b *bench) ack(m model.MemberID, g model.Generation, p model.Partition, next model.Offset) call.AckResult {
	b.Helper()
	a := must[*call.Acked](b, &call.AckCursors{Target: target(), Member: m, Generation: g,
		UpTo: []call.PartitionOffset{{Partition: p, Offset: next}}})
	return a.Results[0]
}

func (b *bench) acked(m model.MemberID, g model.Generation, p model.Partition, next, cursor model.Offset) {
	b.Helper()
	if r := b.ack(m, g, p, next); r.Err != nil || r.Cursor != cursor {
		b.Fatalf("ack of partition %d up to %d: %+v, %v; want cursor %d", p, next, r, r.Err, cursor)
	}
}

func (b *bench) fenced(m model.MemberID, g model.Generation, p model.Partition, next model.Offset) {
	b.Helper()
	r := b.ack(m, g, p, next)
	if r.Err == nil || r.Err.Reason != model.ReasonFenced || r.Err.Expected != uint64(b.view().Generation) {
		b.Fatalf("ack of partition %d: %+v, %v; want FENCED with generation %d", p, r, r.Err, b.view().Generation)
	}
}

func (b *bench) seek(p model.Partition, to model.Offset) model.Generation {
	b.Helper()
	return must[*call.Moved](b, &call.MoveCursors{Target: target(),
		To: []call.PartitionOffset{{Partition: p, Offset: to}}}).Generation
}

// pull grants and delivers up to n messages of each partition.
func (b *bench) pull(m model.MemberID, sequence uint64, n model.Offset) *call.Delivered {
	b.Helper()
	g := b.grant(m, sequence)
	for i := range g.Ranges {
		if r := &g.Ranges[i]; !g.Replay && (r.To == 0 || r.To > r.From+n) {
			r.To = r.From + n
		}
	}
	return b.deliver(m, g.Generation, sequence, g.Ranges...)
}

func (b *bench) owners() (out []model.MemberID) {
	for _, p := range b.view().Partitions {
		out = append(out, p.Owner)
	}
	return out
}

func (b *bench) counts() map[model.MemberID]int {
	out := map[model.MemberID]int{}
	for _, o := range b.owners() {
		out[o]++
	}
	return out
}

func (b *bench) wantRanges(got []call.Range, want ...call.Range) {
	b.Helper()
	same := len(got) == len(want)
	for i := range want {
		want[i].Attempt = 1
		same = same && got[i] == want[i]
	}
	if !same {
		b.Fatalf("ranges %+v; want %+v", got, want)
	}
}

func span(p model.Partition, from, to model.Offset) call.Range {
	return call.Range{Partition: p, From: from, To: to}
}
