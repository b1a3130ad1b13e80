package gateway

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func one(key string) *call.Publish {
	return &call.Publish{Topic: "orders", HasPartition: true, Partition: 0,
		Messages: []batch.Message{{Key: []byte(key), Payload: []byte("m")}}}
}

func TestLeaderHintsAreFollowed(t *testing.T) {
	f := newFake(t)
	f.request(1, one("k"))
	a := f.next()
	f.refuse(a, notLeader("c"))
	f.pass(2 * hopPause)
	b := f.next()
	if a.to == "c" || b.to != "c" || a.id == b.id {
		t.Fatalf("asked %s (%d), then %s (%d)", a.to, a.id, b.to, b.id)
	}
	f.answer(a, &call.Appended{Base: 1}) // too late, and of another try
	if len(f.replies) != 0 {
		t.Fatal("a late answer to an older try counted")
	}
	f.answer(b, &call.Appended{Base: 7})
	if r := f.result(1).(*call.PublishResult); r.Results[0].Offset != 7 {
		t.Fatalf("%+v", r)
	}
	f.request(2, one("k"))
	if f.next().to != "c" {
		t.Fatal("the leader was forgotten")
	}
}

func TestWithoutALeaderEachReplicaIsTried(t *testing.T) {
	f := newFake(t)
	f.down["b"] = true
	f.request(1, one("k"))
	seen := map[model.NodeID]int{}
	for len(f.replies) == 0 {
		if len(f.asks) > 0 {
			a := f.next()
			seen[a.to]++
			f.refuse(a, notLeader(""))
		}
		f.pass(5 * time.Millisecond)
	}
	if seen["a"] < 10 || seen["c"] < 10 || seen["b"] != 0 {
		t.Fatalf("tries: %v", seen)
	}
	err := f.refused(1, model.ReasonNoLeader)
	if f.now < model.Mono(4*time.Second) || f.now > model.Mono(5*time.Second+time.Millisecond) || err.RetryAfter == 0 {
		t.Fatalf("gave up at %v: %v", time.Duration(f.now), err)
	}
	f.idle()
}

// Whose outcome is unknown is repeated only if that is harmless.
func TestUnknownOutcomes(t *testing.T) {
	sequenced := one("k")
	sequenced.Producer, sequenced.Epoch = 5, 1
	for name, c := range map[string]struct {
		call   call.Client
		repeat bool
	}{
		"append without a producer": {one("k"), false},
		"append with a sequence":    {sequenced, true},
		"delete topic":              {&call.Admin{Request: &call.DeleteTopic{Name: "orders"}}, false},
		"open producer":             {&call.OpenProducerCall{Name: "p"}, false},
		"fetch":                     {&call.Fetch{Topic: "orders"}, true},
		"create topic":              {&call.Admin{Request: &call.CreateTopic{Name: "new", Partitions: 1}}, true},
	} {
		for how, lose := range map[string]func(f *fake, a try){
			"stream lost": func(f *fake, a try) { f.g.PeerDown(a.to) },
			"no answer":   func(f *fake, a try) { f.pass(1100 * time.Millisecond) },
		} {
			f := newFake(t)
			f.request(1, c.call)
			lose(f, f.next())
			f.pass(50 * time.Millisecond)
			if again := len(f.asks) > 0; again != c.repeat {
				t.Errorf("%s, %s: repeated is %v", name, how, again)
			}
			if !c.repeat {
				f.refused(1, model.ReasonUnknownOutcome)
				f.idle()
			}
		}
	}
}

// A refusal says nothing of an earlier try that may have worked.
func TestARefusalAfterAnUnknownTry(t *testing.T) {
	fenced := model.Reasoned(model.FailedPrecondition, model.ReasonFenced, 0, "moved on")
	for _, c := range []struct {
		call call.Client
		want model.Reason
	}{
		{&call.Ack{Subscription: "orders/audit", Member: "m", UpTo: []call.PartitionOffset{{Offset: 1}}},
			model.ReasonUnknownOutcome},
		{&call.Pull{Subscription: "orders/audit", Member: "m"}, model.ReasonFenced},
		{&call.ExtendLease{Subscription: "orders/audit", Member: "m"}, model.ReasonFenced},
	} {
		f := newFake(t)
		f.request(1, c.call)
		f.g.PeerDown(f.next().to)
		f.pass(50 * time.Millisecond)
		f.refuse(f.next(), fenced)
		f.refused(1, c.want)
	}
	// The same in an ack's results, partition by partition.
	f := newFake(t)
	f.request(1, &call.Ack{Subscription: "orders/audit", Member: "m",
		UpTo: []call.PartitionOffset{{Offset: 1}, {Partition: 1, Offset: 1}}})
	f.g.PeerDown(f.next().to)
	f.pass(50 * time.Millisecond)
	f.answer(f.next(), &call.Acked{Results: []call.AckResult{{Cursor: 1}, {Partition: 1, Err: fenced}}})
	rs := f.result(1).(*call.AckCallResult).Results
	if rs[0].Err != nil || rs[1].Err.Reason != model.ReasonUnknownOutcome {
		t.Fatalf("%+v", rs)
	}
}

func TestADeadlineEndsARequest(t *testing.T) {
	f := newFake(t)
	sequenced := one("k")
	sequenced.Producer, sequenced.Epoch = 5, 1
	f.g.Request(1, sequenced, f.now.Add(2500*time.Millisecond))
	f.pass(3600 * time.Millisecond) // nobody ever answers
	f.refused(1, model.ReasonUnknownOutcome)
	f.g.Request(2, &call.Fetch{Topic: "orders"}, f.now.Add(2500*time.Millisecond))
	f.pass(3600 * time.Millisecond)
	f.refused(2, model.ReasonNoLeader) // a read leaves nothing behind
	f.idle()
	if len(f.withdrawn) < 2 {
		t.Fatalf("withdrawn: %v", f.withdrawn)
	}
}

// What a leader says of a failing read is passed on when patience ends.
func TestTheLastReasonIsGiven(t *testing.T) {
	f := newFake(t)
	f.request(1, &call.Fetch{Topic: "orders"})
	for len(f.replies) == 0 {
		if len(f.asks) > 0 {
			f.refuse(f.next(), model.Errorf(model.Unavailable, "the segments do not show this offset yet"))
		}
		f.pass(10 * time.Millisecond)
	}
	if err := f.replies[1].err; err.Reason != "" || err.Message != "the segments do not show this offset yet" {
		t.Fatalf("%+v", err)
	}
}

// An answer of another kind, from a node of another version or a faulty one, is
// an error, not a panic.
func TestAnswersOfAnotherKind(t *testing.T) {
	wrong := []call.Response{&call.Empty{}, &call.Appended{}, &call.Done{}, nil}
	for _, c := range []call.Client{one("k"), &call.Fetch{Topic: "orders"}, &call.Pull{Subscription: "orders/audit"},
		&call.Ack{Subscription: "orders/audit", Member: "m", UpTo: []call.PartitionOffset{{Offset: 1}}},
		&call.Seek{Subscription: "orders/audit"}, &call.OpenProducerCall{Name: "p"}, &call.GetTopic{Name: "orders"},
		&call.GetSubscription{Subscription: "orders/audit"}, &call.ListTopics{},
		&call.CreateSubscriptionCall{Topic: "orders", Name: "new"}} {
		for _, w := range wrong {
			f := newFake(t)
			f.request(1, c)
			for i := 0; len(f.asks) > 0 && i < 10; i++ {
				f.answer(f.next(), w)
			}
		}
	}
}

func TestCancelWithdraws(t *testing.T) {
	f := newFake(t)
	f.request(1, &call.Publish{Topic: "orders", Messages: []batch.Message{
		{Key: []byte("a")}, {Key: []byte("b")}, {Key: []byte("c")},
		{Key: []byte("d")}, {Key: []byte("e")}}})
	asked := len(f.asks)
	if asked < 2 {
		t.Fatalf("%d partitions asked", asked)
	}
	f.g.Cancel(1)
	if len(f.withdrawn) != asked {
		t.Fatalf("%d asked, %d withdrawn", asked, len(f.withdrawn))
	}
	for len(f.asks) > 0 {
		f.answer(f.next(), &call.Appended{})
	}
	f.idle()
	if len(f.replies) != 0 {
		t.Fatal("a cancelled request was answered")
	}
}

func TestLimits(t *testing.T) {
	f := newFake(t)
	for id := range uint64(8) {
		f.request(id, &call.Fetch{Topic: "orders"})
	}
	f.request(8, &call.Fetch{Topic: "orders"})
	if f.refused(8, model.ReasonThrottled).RetryAfter == 0 {
		t.Fatal("no hint when to come back")
	}
	f.g.Cancel(0)
	f.request(9, &call.Fetch{Topic: "orders"})
	if _, answered := f.replies[9]; answered {
		t.Fatal("refused though there is room again")
	}
}

// Who leads groups that are no more is forgotten.
func TestLeadersOfGoneGroupsAreForgotten(t *testing.T) {
	f := newFake(t)
	for id := range model.GroupID(1000) {
		f.g.leaders[5000+id] = "a"
	}
	f.g.leaders[coordinator] = "b"
	f.g.CatalogChanged()
	if len(f.g.leaders) != 1 || f.g.leaders[coordinator] != "b" {
		t.Fatalf("%d are remembered", len(f.g.leaders))
	}
}

// Before this node is part of a cluster only GetCluster is answered at once.
func TestWithoutACatalog(t *testing.T) {
	f := newFake(t)
	f.none = true
	f.request(1, &call.GetCluster{})
	f.result(1)
	f.request(2, one("k"))
	f.request(3, one("k"))
	f.pass(time.Second)
	f.g.Cancel(3)
	f.none = false
	f.g.CatalogChanged()
	f.answer(f.next(), &call.Appended{})
	f.result(2)
	f.none = true
	f.request(4, one("k"))
	f.pass(6 * time.Second)
	f.refused(4, model.ReasonNoLeader)
	f.idle()
}
