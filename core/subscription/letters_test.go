package subscription

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group/grouptest"
	"github.com/tapedeck/tapedeck/core/model"
)

const (
	sourceGroup model.GroupID = 100 // partition 0 of the topic
	deadGroup   model.GroupID = 200 // partition 0 of the dead-letter topic
)

// cemetery stands for the groups a coordinator asks.
type cemetery struct {
	*bench
	epochs  map[string]model.Epoch
	letters []batch.Message
	stored  map[sequenceOf]model.Offset
	down    map[model.GroupID]bool // has no leader
	forgets bool                   // the next append's answer is lost
	start   model.Offset           // of the source log
	unknown bool                   // the target forgot all producers
}

type sequenceOf struct {
	group    model.GroupID
	producer model.ProducerID
	epoch    model.Epoch
	sequence model.Sequence
}

func newCemetery(t *testing.T, attempts uint32) *cemetery {
	b := newBench(t, 1)
	c := &cemetery{bench: b, epochs: map[string]model.Epoch{}, stored: map[sequenceOf]model.Offset{},
		down: map[model.GroupID]bool{}}
	b.Cat.PutTopic(&model.Topic{ID: 1, Name: "orders", Partitions: []model.GroupID{sourceGroup}})
	b.Cat.PutTopic(&model.Topic{ID: 2, Name: "dead", Partitions: []model.GroupID{deadGroup}})
	b.settings = model.SubscriptionSettings{MaxAttempts: attempts, DeadLetterTopic: "dead", MinBackoff: time.Millisecond}
	b.create()
	return c
}

// serve answers what is asked, and commits, until nothing is left to do.
func (c *cemetery) serve() {
	for range 100 {
		c.Settle()
		asks := c.Asks
		c.Asks = nil
		for _, a := range asks {
			c.answerAsk(a)
		}
		if len(asks) == 0 && c.Pending() == 0 {
			return
		}
	}
	c.Fatal("it never ends")
}

func (c *cemetery) answerAsk(a grouptest.Ask) {
	m := c.machine()
	if c.down[a.Group] {
		m.AskDone(c.Host, a.ID, nil, model.Reasoned(model.Unavailable, model.ReasonNoLeader, time.Second, "no leader"))
		return
	}
	switch req := a.Req.(type) {
	case *call.OpenProducer:
		c.epochs[req.Name]++
		m.AskDone(c.Host, a.ID, &call.ProducerOpened{ID: 7, Epoch: c.epochs[req.Name]}, nil)
	case *call.Read:
		if req.Offset < c.start {
			err := model.Reasoned(model.OutOfRange, model.ReasonOffsetTooOld, 0, "gone")
			err.Start, err.End = c.start, 100
			m.AskDone(c.Host, a.ID, nil, err)
			return
		}
		v := batch.Encode([]batch.Message{{Payload: []byte("before")}, {Key: []byte("k"), Payload: []byte("poison"),
			Attributes: []batch.Attribute{{Name: "kind", Value: "bad"}}}}, batch.Options{})
		v.Stamp(req.Offset-min(req.Offset, 1), 5)
		m.AskDone(c.Host, a.ID, &call.ReadResult{Run: v, Next: v.Next()}, nil)
	case *call.Append:
		resp, err := c.store(a.Group, req)
		if c.forgets {
			c.forgets = false
			resp, err = nil, model.Reasoned(model.DeadlineExceeded, model.ReasonUnknownOutcome, 0, "lost")
		}
		if err != nil {
			m.AskDone(c.Host, a.ID, nil, err)
		} else {
			m.AskDone(c.Host, a.ID, resp, nil)
		}
	default:
		c.Fatalf("asked for %T", req)
	}
}

func (c *cemetery) store(g model.GroupID, req *call.Append) (*call.Appended, *model.Error) {
	v := batch.View(req.Batch)
	key := sequenceOf{g, v.Producer(), v.Epoch(), v.Sequence()}
	if at, ok := c.stored[key]; ok {
		return &call.Appended{Base: at, Duplicate: true}, nil
	}
	if c.unknown && !req.Start {
		return nil, model.Reasoned(model.FailedPrecondition, model.ReasonSequenceUnknown, 0, "forgotten")
	}
	if before := (sequenceOf{g, v.Producer(), v.Epoch(), v.Sequence() - 1}); v.Sequence() > 0 && !req.Start {
		if _, ok := c.stored[before]; !ok {
			c.Fatalf("sequence %d leaves a gap", v.Sequence())
		}
	}
	at := model.Offset(len(c.letters))
	v.Stamp(at, 9) // as a leader does: in place
	ms, err := v.Messages(nil)
	if err != nil {
		c.Fatal(err)
	}
	c.letters, c.stored[key] = append(c.letters, ms...), at
	return &call.Appended{Base: at}, nil
}

// exhaust uses up the attempts of the message at an offset.
func (c *cemetery) exhaust(offset model.Offset, attempts int) model.Generation {
	c.Helper()
	var g model.Generation
	for range attempts {
		g = c.pull("a", 0, 10).Generation
		c.nacked("a", g, 0, offset)
		c.Advance(time.Second)
	}
	return g
}

func (c *cemetery) wantLetters(n int) {
	c.Helper()
	if len(c.letters) != n {
		c.Fatalf("%d dead letters; want %d", len(c.letters), n)
	}
}

func TestDeadLetter(t *testing.T) {
	c := newCemetery(t, 2)
	g := c.pull("a", 0, 10).Generation
	c.acked("a", g, 0, 2, 2)
	c.exhaust(3, 1)
	c.serve()
	c.wantLetters(0)
	c.wantRanges(c.grant("a", 0).Ranges, span(0, 2, 3)) // it goes out alone now
	c.single("a", g, 0, 2)
	c.wantRanges(c.grant("a", 0).Ranges, span(0, 3, 4))
	c.exhaust(3, 1)
	if g := c.grant("a", 0); len(g.Ranges) != 0 { // nothing beyond it until it is moved
		t.Fatalf("%+v", g.Ranges)
	}
	c.serve()
	c.wantLetters(1)
	m := c.letters[0]
	attributes := map[string]string{}
	for _, a := range m.Attributes {
		attributes[a.Name] = a.Value
	}
	if string(m.Payload) != "poison" || string(m.Key) != "k" || attributes["kind"] != "bad" ||
		attributes[AttributeTopic] != "orders" || attributes[AttributePartition] != "0" ||
		attributes[AttributeOffset] != "3" || attributes[AttributeAttempts] != "2" ||
		attributes[AttributeSubscription] != ref || !strings.Contains(attributes[AttributeReason], "2") {
		t.Fatalf("%+v %v", m, attributes)
	}
	if v := c.view().Partitions[0]; v.Cursor != 4 {
		t.Fatalf("%+v", v)
	}
	c.wantRanges(c.pull("a", 0, 2).Ranges, span(0, 4, 6))
	c.acked("a", g, 0, 5, 5)
	c.exhaust(5, 2)
	c.serve()
	c.wantLetters(2) // the next sequence
}

func TestConsumerDiesAtTheLastAttempt(t *testing.T) {
	c := newCemetery(t, 5)
	for attempt := uint32(1); attempt <= 5; attempt++ {
		c.wantLetters(0)
		r := c.pull(model.MemberID(fmt.Sprint("c", attempt)), 0, 4).Ranges
		if r[0].Attempt != attempt || r[0].From != 0 {
			t.Fatalf("%+v", r)
		}
		c.Advance(model.DefaultSessionTimeout)
		c.serve()
	}
	c.wantLetters(1)
	c.wantRanges(c.pull("d", 0, 4).Ranges, span(0, 1, 5))
}

func TestDeadLetterTopicWithoutLeader(t *testing.T) {
	c := newCemetery(t, 1)
	c.down[deadGroup] = true
	c.exhaust(0, 1)
	for range 20 {
		c.serve()
		must[*call.Empty](c.bench, &call.Heartbeat{Target: target(), Member: "a"})
		c.Advance(time.Second)
	}
	if g := c.grant("a", 0); len(g.Ranges) != 0 || c.view().Partitions[0].Cursor != 0 {
		t.Fatalf("the message was passed over: %+v", g)
	}
	c.down[deadGroup] = false
	c.serve()
	c.wantLetters(1)
	c.wantRanges(c.pull("a", 0, 4).Ranges, span(0, 1, 5))
}

// Whoever leads and whatever gets lost, there is one copy.
func TestOneCopyOverFailovers(t *testing.T) {
	c := newCemetery(t, 1)
	c.exhaust(0, 1)
	for range 12 {
		c.Settle()
		asks := c.Asks
		c.Asks, c.forgets = nil, true // the copy is stored, its answer is lost
		for _, a := range asks {
			c.answerAsk(a)
		}
		c.failover()
		c.Advance(time.Second)
	}
	c.forgets = false
	c.serve()
	c.Advance(time.Second)
	c.serve()
	c.wantLetters(1)
	if v := c.view().Partitions[0]; v.Cursor != 1 {
		t.Fatalf("%+v", v)
	}
	if c.machine().Hash() != c.follower.Machine.(*Machine).Hash() {
		c.follower.CatchUp()
		if c.machine().Hash() != c.follower.Machine.(*Machine).Hash() {
			t.Fatal("replicas differ")
		}
	}
}

// A seek resets attempts; a move under way is finished, and acks nothing.
func TestSeekDuringAMove(t *testing.T) {
	c := newCemetery(t, 1)
	c.down[deadGroup] = true
	c.exhaust(2, 1)
	c.serve()
	c.seek(0, 0)
	c.down[deadGroup] = false
	c.Advance(time.Second)
	c.serve()
	c.wantLetters(1)
	if v := c.view().Partitions[0]; v.Cursor != 0 || v.Acked != 0 {
		t.Fatalf("%+v", v)
	}
	c.wantRanges(c.pull("a", 0, 4).Ranges, span(0, 0, 4))
}

func TestForgottenProducerAndLostTopic(t *testing.T) {
	c := newCemetery(t, 1)
	c.exhaust(0, 1)
	c.serve()
	c.unknown = true
	c.exhaust(1, 1)
	c.serve()
	c.Advance(time.Second)
	c.serve()
	c.wantLetters(2)
	c.down[deadGroup] = true
	c.exhaust(2, 1)
	c.serve()
	c.Cat.DeleteTopic("dead")
	c.Cat.PutTopic(&model.Topic{ID: 3, Name: "dead", Partitions: []model.GroupID{deadGroup + 1}})
	for range 3 {
		c.Advance(time.Second)
		c.serve()
	}
	c.wantLetters(3) // to the topic there is now
	if v := c.view().Partitions[0]; v.Cursor != 3 {
		t.Fatalf("%+v", v)
	}
}

func TestRetentionTakesACondemnedMessage(t *testing.T) {
	c := newCemetery(t, 1)
	c.start = 5
	c.exhaust(0, 1)
	c.serve()
	c.Advance(time.Second)
	c.serve()
	c.wantLetters(0)
	g := c.grant("a", 0)
	c.wantRanges(g.Ranges, span(0, 5, 0))
	if len(g.Skipped) != 1 || g.Skipped[0] != span(0, 0, 5) {
		t.Fatalf("nothing was said: %+v", g.Skipped)
	}
}

// A topic that is gone is said at once, one without a leader after a while; the
// operator is told once of each time.
func TestDeadLettersThatWaitAreSaid(t *testing.T) {
	c := newCemetery(t, 1)
	waits := func() string {
		c.Helper()
		return must[*call.Description](c.bench, &call.Describe{Target: target()}).Cursors[0].Waits
	}
	wants := func(counted, notes int, says ...string) {
		c.Helper()
		got := waits()
		for _, s := range says {
			if !strings.Contains(got, s) {
				t.Fatalf("%q is not in %q", s, got)
			}
		}
		if n := c.machine().DeadLettersWaiting(c.Host); n != counted || len(says) == 0 && got != "" || len(c.Notes) != notes {
			t.Fatalf("%d wait: %q; notes %q; want %d and %d notes", n, got, c.Notes, counted, notes)
		}
	}
	pass := func(seconds int) {
		for range seconds {
			c.serve()
			must[*call.Empty](c.bench, &call.Heartbeat{Target: target(), Member: "a"})
			c.Advance(time.Second)
		}
		c.serve()
	}
	c.down[deadGroup] = true
	c.exhaust(0, 1)
	pass(5)
	wants(0, 0)
	pass(20)
	wants(1, 1, "offset 0 is out of attempts", "dead-letter topic dead has not taken it for ", "no leader")
	c.down[deadGroup] = false
	pass(2)
	wants(0, 2)
	c.Cat.DeleteTopic("dead")
	c.exhaust(1, 1)
	pass(2)
	wants(1, 3, "waits: dead-letter topic dead is gone, and offset 1 is out of attempts; create it again, or update")
	if !strings.Contains(c.Notes[2], "partition 0 waits: dead-letter topic dead is gone") {
		t.Fatalf("%q", c.Notes)
	}
	c.Cat.PutTopic(&model.Topic{ID: 3, Name: "dead", Partitions: []model.GroupID{deadGroup + 1}})
	pass(2)
	wants(0, 4)
	c.wantLetters(2)
}
