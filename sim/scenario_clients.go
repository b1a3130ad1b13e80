package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// namedProducer is a producer that a scenario opened by name.
type namedProducer struct {
	id    model.ProducerID
	epoch model.Epoch
}

// subscribe ORDERS/BILLING [start=earliest|latest|time:MARK] [session=10s] [deadline=30s]
// [mode=shared] [by_key=true] [attempts= dead=TOPIC] [backoff=] [member_limit=] [limit=]
// [filter=TEXT, without spaces]
func (s *scenario) subscribe(c *command) {
	ref := c.arg("topic/name")
	topic, name, _ := strings.Cut(ref, "/")
	q := &call.CreateSubscriptionCall{Topic: topic, Name: name, Start: s.place(c, c.str("start", "earliest")),
		Settings: model.SubscriptionSettings{SessionTimeout: c.duration("session", 0),
			AckDeadline: c.duration("deadline", 0), KeyOrdered: c.choice("by_key", "false", "true") == "true",
			MaxAttempts: uint32(c.num("attempts", 0)), DeadLetterTopic: c.str("dead", ""),
			MinBackoff: c.duration("backoff", 0), MaxInFlightMember: uint32(c.num("member_limit", 0)),
			MaxInFlight: uint32(c.num("limit", 0)), Filter: c.str("filter", "")}}
	if c.choice("mode", "ordered", "shared") == "shared" {
		q.Settings.Mode = model.ModeShared
	}
	if _, err := s.askNow(s.client(c, "setup"), q, 30*time.Second); err != nil && err.Code == model.InvalidArgument {
		s.print("%s", failure(err))
		return
	} else if err != nil {
		s.demand(c, q)
	}
	s.refs = append(s.refs, ref)
}

// place reads earliest, latest, or time:MARK.
func (s *scenario) place(c *command, word string) model.Start {
	switch mark, isTime := strings.CutPrefix(word, "time:"); {
	case word == "earliest":
		return model.Start{Kind: model.StartEarliest}
	case word == "latest":
		return model.Start{Kind: model.StartLatest}
	case isTime:
		at, there := s.marks[mark]
		if !there {
			c.fail("there is no mark %q; set it by the command mark", mark)
		}
		return model.Start{Kind: model.StartTime, Time: at}
	}
	c.fail("%q is none of earliest, latest, time:MARK", word)
	return model.Start{}
}

// mark NAME remembers the present moment, for time:NAME.
func (s *scenario) mark(c *command) { s.marks[c.arg("name")] = epoch + model.Wall(s.w.loop.now) }

// open NAME [fence=TOPIC] opens a producer and prints its epoch.
func (s *scenario) open(c *command) {
	name := c.arg("producer")
	q := &call.OpenProducerCall{Name: name}
	if topic := c.str("fence", ""); topic != "" {
		q.Fence, q.Topic = true, topic
	}
	p, err := s.openNow(c, q)
	if err != nil {
		s.print("%s", failure(err))
		return
	}
	s.print("epoch %d", p.epoch)
}

func (s *scenario) openNow(c *command, q *call.OpenProducerCall) (*namedProducer, *model.Error) {
	result, err := s.askNow(s.client(c, "c1"), q, 5*time.Second)
	if err != nil {
		return nil, err
	}
	r := result.(*call.OpenProducerCallResult)
	p := &namedProducer{r.ID, r.Epoch}
	s.producers[q.Name] = p
	return p, nil
}

// publish TOPIC [key=] [payload=] [attributes=NAME:VALUE,…] [partition=] [producer= [epoch=] sequence=]
// [count=] [at=n1] [timeout=2s] prints partition@offset, or why not. Without a
// payload it gets one of its own; a retry names the payload again.
func (s *scenario) publish(c *command) {
	topic := c.arg("topic")
	cl := s.client(c, "c1")
	s.publishes++
	payload := c.str("payload", "m"+strconv.Itoa(s.publishes))
	q := &call.Publish{Topic: topic}
	key := c.str("key", "")
	attributes := attributesOf(c, c.str("attributes", ""))
	for i := range c.num("count", 1) {
		m := batch.Message{Payload: []byte(payload)}
		if i > 0 {
			m.Payload = fmt.Appendf(nil, "%s.%d", payload, i)
		}
		if key != "" {
			m.Key = []byte(key)
		}
		m.Attributes = attributes
		q.Messages = append(q.Messages, m)
	}
	if c.has("partition") {
		q.HasPartition, q.Partition = true, model.Partition(c.num("partition", 0))
	}
	if name := c.str("producer", ""); name != "" {
		p := s.producers[name]
		if p == nil {
			var err *model.Error
			if p, err = s.openNow(c, &call.OpenProducerCall{Name: name}); err != nil {
				c.fail("opening producer %s: %v", name, err)
			}
		}
		q.Producer, q.Epoch = p.id, model.Epoch(c.num("epoch", uint64(p.epoch)))
		q.Sequence = model.Sequence(c.num("sequence", 0))
	}
	result, err := s.askNow(cl, q, c.duration("timeout", 5*time.Second))
	if err != nil {
		s.print("%s", failure(err))
		return
	}
	for _, r := range result.(*call.PublishResult).Results {
		switch {
		case r.Err != nil:
			s.print("%s", failure(r.Err))
		case r.Duplicate:
			s.print("%d@%d duplicate", r.Partition, r.Offset)
		default:
			s.print("%d@%d", r.Partition, r.Offset)
		}
	}
}

// attributesOf reads NAME:VALUE,NAME:VALUE…
func attributesOf(c *command, list string) (out []batch.Attribute) {
	for word := range strings.SplitSeq(list, ",") {
		if name, value, ok := strings.Cut(word, ":"); ok {
			out = append(out, batch.Attribute{Name: name, Value: value})
		} else if word != "" {
			c.fail("attributes=%s is not a list of name:value", list)
		}
	}
	return out
}

// splitPartition reads TOPIC/PARTITION.
func splitPartition(c *command) (string, model.Partition) {
	name := c.arg("topic/partition")
	topic, number, _ := strings.Cut(name, "/")
	p, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		c.fail("%q is not of the form topic/partition", name)
	}
	return topic, model.Partition(p)
}

// printMessages lists messages [from, to) of batches.
func (s *scenario) printMessages(p model.Partition, vs []batch.View, from, to model.Offset, note string) {
	for _, v := range vs {
		msgs, err := v.Messages(nil)
		if err != nil {
			s.print("damaged batch: %v", err)
			continue
		}
		for i := range msgs {
			if o := v.Base() + model.Offset(i); o >= from && o < to {
				key := string(msgs[i].Key)
				if key == "" {
					key = "-"
				}
				s.print("%d@%d %s %s%s", p, o, key, msgs[i].Payload, note)
			}
		}
	}
}

// fetch TOPIC/P [from=0] [max=] [wait=] [at=n1] prints messages and the bounds.
func (s *scenario) fetch(c *command) {
	topic, p := splitPartition(c)
	q := &call.Fetch{Topic: topic, Partition: p, Offset: model.Offset(c.num("from", 0)),
		MaxMessages: uint32(c.num("max", 0)), Wait: c.duration("wait", 0)}
	result, err := s.askNow(s.client(c, "reader"), q, c.duration("timeout", 5*time.Second))
	if err != nil {
		s.print("%s", failure(err))
		return
	}
	r := result.(*call.FetchResult)
	s.printMessages(p, r.Batches, q.Offset, r.Next, "")
	s.print("next %d of [%d, %d)", r.Next, r.LogStart, r.HighWatermark)
}

// pull REF member= [sequence=] [max=] [wait=] prints generation and messages.
func (s *scenario) pull(c *command) {
	q := &call.Pull{Subscription: c.arg("topic/name"), Member: model.MemberID(c.str("member", "m1")),
		PullSequence: c.num("sequence", 0), MaxMessages: uint32(c.num("max", 0)), Wait: c.duration("wait", 0),
		Static: c.choice("static", "false", "true") == "true"}
	timeout := c.duration("timeout", q.Wait+5*time.Second)
	result, err := s.askNow(s.client(c, string(q.Member)), q, timeout)
	if err != nil {
		s.print("%s", failure(err))
		return
	}
	r := result.(*call.PullResult)
	if r.Delivery != 0 {
		s.print("generation %d delivery %d", r.Generation, r.Delivery)
	} else {
		s.print("generation %d", r.Generation)
	}
	slices.SortFunc(r.Ranges, func(a, b call.PulledRange) int { return int(a.Partition) - int(b.Partition) })
	for _, g := range r.Ranges {
		if g.Attempt > 1 {
			s.printMessages(g.Partition, g.Batches, g.From, g.From+1, " attempt "+strconv.Itoa(int(g.Attempt)))
			g.From++
		}
		s.printMessages(g.Partition, g.Batches, g.From, g.To, "")
	}
	for _, k := range r.Skipped {
		s.print("skipped %d [%d, %d)", k.Partition, k.From, k.To)
	}
}

// places reads P@OFFSET,P@OFFSET…
func places(c *command, list string) (out []call.PartitionOffset) {
	for word := range strings.SplitSeq(list, ",") {
		partition, offset, _ := strings.Cut(word, "@")
		p, err1 := strconv.ParseUint(partition, 10, 32)
		o, err2 := strconv.ParseUint(offset, 10, 64)
		if err1 != nil || err2 != nil {
			c.fail("%q is not of the form partition@offset", word)
		}
		out = append(out, call.PartitionOffset{Partition: model.Partition(p), Offset: model.Offset(o)})
	}
	return out
}

// ack REF member= generation= [up_to=P@NEXT,…] [offsets=P@OFFSET,…] prints each
// partition's cursor.
func (s *scenario) ack(c *command) {
	q := &call.Ack{Subscription: c.arg("topic/name"), Member: model.MemberID(c.str("member", "m1")),
		Generation: model.Generation(c.num("generation", 0))}
	if list := c.str("up_to", ""); list != "" {
		q.UpTo = places(c, list)
	}
	if list := c.str("offsets", ""); list != "" {
		q.Offsets = places(c, list)
	}
	result, err := s.askNow(s.client(c, string(q.Member)), q, c.duration("timeout", 5*time.Second))
	if err != nil {
		s.print("%s", failure(err))
		return
	}
	for _, r := range result.(*call.AckCallResult).Results {
		if r.Err != nil {
			s.print("%d %s", r.Partition, failure(r.Err))
		} else {
			s.print("%d cursor %d", r.Partition, r.Cursor)
		}
	}
}

// named reads the messages that a nack or an extension names.
func named(c *command) (offsets []call.PartitionOffset, deliveries []uint64) {
	offsets = places(c, c.str("offsets", ""))
	if d := c.num("delivery", 0); d != 0 {
		deliveries = slices.Repeat([]uint64{d}, len(offsets))
	}
	return offsets, deliveries
}

// nack REF member= generation= offsets=P@O,… [delivery=] [delay=] gives messages back.
func (s *scenario) nack(c *command) {
	q := &call.Nack{Subscription: c.arg("topic/name"), Member: model.MemberID(c.str("member", "m1")),
		Generation: model.Generation(c.num("generation", 0)), Delay: c.duration("delay", 0)}
	q.Offsets, q.Deliveries = named(c)
	if _, err := s.askNow(s.client(c, string(q.Member)), q, 5*time.Second); err != nil {
		s.print("%s", failure(err))
	}
}

// extend REF member= generation= offsets=P@O,… [delivery=] [by=] gives more time.
func (s *scenario) extend(c *command) {
	q := &call.ExtendLease{Subscription: c.arg("topic/name"), Member: model.MemberID(c.str("member", "m1")),
		Generation: model.Generation(c.num("generation", 0)), Extension: c.duration("by", 0)}
	q.Offsets, q.Deliveries = named(c)
	if _, err := s.askNow(s.client(c, string(q.Member)), q, 5*time.Second); err != nil {
		s.print("%s", failure(err))
	}
}

// heartbeat REF member= renews a member's session.
func (s *scenario) heartbeat(c *command) {
	q := &call.ExtendLease{Subscription: c.arg("topic/name"), Member: model.MemberID(c.str("member", "m1"))}
	if _, err := s.askNow(s.client(c, string(q.Member)), q, 5*time.Second); err != nil {
		s.print("%s", failure(err))
	}
}

// seek REF to=earliest|latest|time:MARK|offsets:P@O,…|snapshot:NAME
// [partitions=0,1]
func (s *scenario) seek(c *command) {
	q := &call.Seek{Subscription: c.arg("topic/name")}
	to := c.str("to", "")
	if list, ok := strings.CutPrefix(to, "offsets:"); ok {
		q.To.Kind, q.Offsets = model.StartOffsets, places(c, list)
	} else if name, ok := strings.CutPrefix(to, "snapshot:"); ok {
		q.To.Kind, q.Snapshot = model.StartSnapshot, name
	} else {
		q.To = s.place(c, to)
	}
	if list := c.str("partitions", ""); list != "" {
		for word := range strings.SplitSeq(list, ",") {
			p, err := strconv.ParseUint(word, 10, 32)
			if err != nil {
				c.fail("partitions=%s is not a list of numbers", list)
			}
			q.Partitions = append(q.Partitions, model.Partition(p))
		}
	}
	result, err := s.askNow(s.client(c, "c1"), q, c.duration("timeout", 5*time.Second))
	if err != nil {
		s.print("%s", failure(err))
		return
	}
	r := result.(*call.SeekResult)
	s.print("generation %d", r.Generation)
	for _, p := range r.Cursors {
		s.print("%d cursor %d", p.Partition, p.Offset)
	}
}

// snapshot create|delete|list REF [NAME] prints the snapshots it is about.
func (s *scenario) snapshot(c *command) {
	var q call.Client
	switch what, ref := c.arg("create, delete or list"), c.arg("topic/name"); what {
	case "create", "delete":
		q = &call.Snapshot{Subscription: ref, Name: c.arg("name"), Forget: what == "delete"}
	case "list":
		q = &call.ListSnapshots{Subscription: ref}
	default:
		c.fail("%q is none of create, delete, list", what)
	}
	result, err := s.askNow(s.client(c, "c1"), q, c.duration("timeout", 5*time.Second))
	if err != nil {
		s.print("%s", failure(err))
		return
	}
	for _, k := range result.(*call.SnapshotsResult).Snapshots {
		at := make([]string, 0, len(k.Cursors))
		for _, p := range k.Cursors {
			at = append(at, fmt.Sprintf("%d@%d", p.Partition, p.Offset))
		}
		s.print("%s %s", k.Name, strings.Join(at, ","))
	}
}

// leave REF member= ends a session.
func (s *scenario) leave(c *command) {
	q := &call.LeaveSubscription{Subscription: c.arg("topic/name"), Member: model.MemberID(c.str("member", "m1"))}
	if _, err := s.askNow(s.client(c, string(q.Member)), q, 5*time.Second); err != nil {
		s.print("%s", failure(err))
	}
}

// describe REF prints members and, per partition, cursor, end, lag, owner and fence.
func (s *scenario) describe(c *command) {
	q := &call.GetSubscription{Subscription: c.arg("topic/name")}
	result, err := s.askNow(s.client(c, "c1"), q, 5*time.Second)
	if err != nil {
		s.print("%s", failure(err))
		return
	}
	r := result.(*call.GetSubscriptionResult)
	for _, m := range r.Description.Members {
		s.print("member %s partitions %v", m.ID, m.Partitions)
	}
	for _, p := range r.Partitions {
		if p.Err != nil {
			s.print("%d %s", p.Partition, failure(p.Err))
			continue
		}
		owner := string(p.Owner)
		if owner == "" {
			owner = "-"
		}
		s.print("%d cursor %d of %d lag %d owner %s fence %d", p.Partition, p.Cursor, p.HighWatermark, p.Lag, owner,
			p.Fence)
	}
}
