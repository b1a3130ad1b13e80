package sim

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// recorder writes what clients call and get into a history. Messages are known
// by the hash of their payload, so payloads must be unique unless retried.
type recorder struct {
	w       *World
	history checker.History
	open    int // calls not yet answered
}

func (r *recorder) now() checker.Moment { return checker.Moment(r.w.loop.now) }

// payloadID is a message's name in the history.
func payloadID(payload []byte) uint64 { return xxhash.Sum64(payload) }

// invoke notes a call and returns what notes its answer. partitions is the
// topic's count, by which keys are split. Calls that the checkers do not judge
// are not noted.
func (r *recorder) invoke(client checker.ClientID, c call.Client, partitions uint32) answer {
	switch c := c.(type) {
	case *call.Publish:
		return r.publish(client, c, partitions)
	case *call.PublishBatch:
		return r.publishBatch(client, c)
	case *call.Fetch:
		return r.fetch(client, c)
	case *call.Pull:
		return r.pull(client, c)
	case *call.Ack:
		return r.ack(client, c)
	case *call.Nack:
		return r.nack(client, c)
	case *call.Seek:
		return r.seek(client, c)
	case *call.GetSubscription:
		return r.describe(client, c)
	case *call.Snapshot:
		if !c.Forget {
			return r.snapshot(client, c)
		}
	case *call.GetTopic:
		return r.describeTopic(client, c)
	case *call.OpenProducerCall:
		return r.openProducer(client, c)
	case *call.CreateSubscriptionCall:
		return r.create(client, created(c))
	case *call.LeaveSubscription:
		i := r.begin(client, checker.Op{Leave: &checker.Leave{Subscription: c.Subscription, Member: c.Member}})
		return func(_ call.ClientResult, err *model.Error) { r.end(i, err) }
	case *call.Admin:
		switch t := c.Request.(type) {
		case *call.CreateTopic:
			return r.create(client, checker.Create{Topic: t.Name, Partitions: t.Partitions})
		case *call.DeleteTopic:
			i := r.begin(client, checker.Op{Delete: &checker.Delete{Topic: t.Name}})
			return func(_ call.ClientResult, err *model.Error) { r.end(i, err) }
		}
	}
	return func(call.ClientResult, *model.Error) {}
}

func (r *recorder) begin(client checker.ClientID, op checker.Op) int {
	op.Client, op.Call = client, r.now()
	return r.history.Invoke(op)
}

func (r *recorder) end(i int, err *model.Error) (op *checker.Op, ok bool) {
	out, reason := checker.OutcomeOf(err)
	return r.history.Answer(i, r.now(), out, reason), err == nil
}

// publish splits by partition, as the gateway will.
func (r *recorder) publish(client checker.ClientID, c *call.Publish, partitions uint32) answer {
	type part struct {
		op    int
		first int // of its messages in the request
	}
	var parts []part
	for i := range c.Messages {
		m := &c.Messages[i]
		p := checker.Publish{Topic: c.Topic, Partition: c.Partition, Producer: c.Producer, Epoch: c.Epoch,
			Sequence: c.Sequence,
			Messages: []checker.Published{{Key: string(m.Key), Payload: payloadID(m.Payload), Tag: tagOf(m)}}}
		switch {
		case c.HasPartition:
		case len(m.Key) > 0 && r.w.opts.Operator.Partitions == 0:
			p.Partition = batch.PartitionFor(m.Key, partitions)
		default:
			p.AnyPartition = true
		}
		if c.Producer != 0 && i > 0 { // one partition by contract: one op
			op := &r.history.Ops[parts[0].op]
			op.Publish.Messages = append(op.Publish.Messages, p.Messages...)
			continue
		}
		parts = append(parts, part{r.begin(client, checker.Op{Publish: &p}), i})
	}
	return func(result call.ClientResult, err *model.Error) {
		for _, p := range parts {
			e := err
			var res call.MessageResult
			if e == nil {
				res = result.(*call.PublishResult).Results[p.first]
				e = res.Err
			}
			if op, ok := r.end(p.op, e); ok {
				op.Publish.AnyPartition, op.Publish.Partition = false, res.Partition
				op.Publish.Offset, op.Publish.Duplicate = res.Offset, res.Duplicate
			}
		}
	}
}

func (r *recorder) publishBatch(client checker.ClientID, c *call.PublishBatch) answer {
	v, err := batch.ParseHeader(c.Batch)
	if err != nil {
		return func(call.ClientResult, *model.Error) {}
	}
	p := checker.Publish{Topic: c.Topic, Partition: c.Partition, Producer: v.Producer(), Epoch: v.Epoch(),
		Sequence: v.Sequence()}
	msgs, _ := v.Messages(nil)
	for i := range msgs {
		p.Messages = append(p.Messages,
			checker.Published{Key: string(msgs[i].Key), Payload: payloadID(msgs[i].Payload), Tag: tagOf(&msgs[i])})
	}
	i := r.begin(client, checker.Op{Publish: &p})
	return func(result call.ClientResult, err *model.Error) {
		if op, ok := r.end(i, err); ok {
			res := result.(*call.PublishBatchResult)
			op.Publish.Offset, op.Publish.Duplicate = res.Base, res.Duplicate
		}
	}
}

// delivered lists the messages of [from, to) in batches.
func delivered(vs []batch.View, p model.Partition, from, to model.Offset, attempt uint32) []checker.Message {
	var out []checker.Message
	for _, v := range vs {
		msgs, err := v.Messages(nil)
		if err != nil {
			continue
		}
		for i := range msgs {
			o := v.Base() + model.Offset(i)
			if o < from || o >= to {
				continue
			}
			a := uint32(0)
			if o == from {
				a = attempt
			}
			out = append(out, checker.Message{Partition: p, Attempt: a, Offset: o,
				Payload: payloadID(msgs[i].Payload), AppendTime: v.AppendTime()})
		}
	}
	return out
}

func (r *recorder) fetch(client checker.ClientID, c *call.Fetch) answer {
	i := r.begin(client, checker.Op{Fetch: &checker.Fetch{Topic: c.Topic, Partition: c.Partition, Offset: c.Offset}})
	return func(result call.ClientResult, err *model.Error) {
		if op, ok := r.end(i, err); ok {
			res := result.(*call.FetchResult)
			op.Fetch.Messages = delivered(res.Batches, 0, c.Offset, res.Next, 0)
			op.Fetch.HighWatermark, op.Fetch.LogStart = res.HighWatermark, res.LogStart
		}
	}
}

func (r *recorder) pull(client checker.ClientID, c *call.Pull) answer {
	i := r.begin(client, checker.Op{Pull: &checker.Pull{Subscription: c.Subscription, Member: c.Member,
		Sequence: c.PullSequence}})
	return func(result call.ClientResult, err *model.Error) {
		op, ok := r.end(i, err)
		if !ok {
			return
		}
		res := result.(*call.PullResult)
		op.Pull.Member, op.Pull.Generation, op.Pull.Delivery = res.Member, res.Generation, res.Delivery
		for _, g := range res.Ranges {
			ms := delivered(g.Batches, g.Partition, g.From, g.To, g.Attempt)
			for k := range ms {
				if res.Delivery != 0 { // a range is cut where a message came back before
					ms[k].Attempt = max(ms[k].Attempt, 1)
				}
			}
			op.Pull.Messages = append(op.Pull.Messages, ms...)
		}
		for _, s := range res.Skipped {
			op.Pull.Skipped = append(op.Pull.Skipped, checker.Range{Partition: s.Partition, From: s.From, To: s.To})
		}
	}
}

// created is a subscription as its verdicts have to know it.
func created(c *call.CreateSubscriptionCall) checker.Create {
	s := &c.Settings
	out := checker.Create{Subscription: c.Topic + "/" + c.Name, Start: target(c.Start.Kind), Time: c.Start.Time,
		Shared: s.Mode == model.ModeShared, KeyOrdered: s.KeyOrdered, Attempts: s.MaxAttempts,
		DeadLetters: s.DeadLetterTopic, Filtered: s.Filter != "", Tag: tagWanted(s.Filter)}
	if out.Shared { // clocks differ by less than a tenth
		out.Lease = checker.Moment(min(cmp.Or(s.AckDeadline, model.DefaultAckDeadline),
			cmp.Or(s.SessionTimeout, model.DefaultSessionTimeout))) * 9 / 10
	}
	return out
}

// ack notes one operation per partition named, for what is acked up to an offset
// and for single messages each.
func (r *recorder) ack(client checker.ClientID, c *call.Ack) answer {
	var ops []int
	if len(c.Offsets) > 0 {
		return r.ackSingles(client, c)
	}
	for _, u := range c.UpTo {
		ops = append(ops, r.begin(client, checker.Op{Ack: &checker.Ack{Subscription: c.Subscription,
			Member: c.Member, Generation: c.Generation, Partition: u.Partition, Next: u.Offset}}))
	}
	return func(result call.ClientResult, err *model.Error) {
		for k, i := range ops {
			e := err
			var res call.AckResult
			if e == nil {
				res = result.(*call.AckCallResult).Results[k]
				e = res.Err
			}
			if op, ok := r.end(i, e); ok {
				op.Ack.Cursor = res.Cursor
			}
		}
	}
}

// ackSingles notes one operation per partition, in the order named.
func (r *recorder) ackSingles(client checker.ClientID, c *call.Ack) answer {
	var ops []int
	place := map[model.Partition]int{}
	for _, o := range c.Offsets {
		i, there := place[o.Partition]
		if !there {
			i = r.begin(client, checker.Op{Ack: &checker.Ack{Subscription: c.Subscription, Member: c.Member,
				Generation: c.Generation, Partition: o.Partition}})
			place[o.Partition], ops = i, append(ops, i)
		}
		op := &r.history.Ops[i]
		op.Ack.Offsets = append(op.Ack.Offsets, o.Offset)
	}
	return func(result call.ClientResult, err *model.Error) {
		for k, i := range ops {
			e := err
			if e == nil {
				e = result.(*call.AckCallResult).Results[k].Err
			}
			if op, ok := r.end(i, e); ok {
				op.Ack.Cursor = result.(*call.AckCallResult).Results[k].Cursor
			}
		}
	}
}

// nack notes each message given back. An answer of no may mean one of them only.
func (r *recorder) nack(client checker.ClientID, c *call.Nack) answer {
	var ops []int
	for _, o := range c.Offsets {
		ops = append(ops, r.begin(client, checker.Op{Nack: &checker.Nack{Subscription: c.Subscription, Member: c.Member,
			Generation: c.Generation, Partition: o.Partition, Offset: o.Offset}}))
	}
	return func(_ call.ClientResult, err *model.Error) {
		if len(ops) > 1 && err != nil {
			err = model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, 0, "%v", err)
		}
		for _, i := range ops {
			r.end(i, err)
		}
	}
}

func target(k model.StartKind) checker.Target {
	return [...]checker.Target{checker.TargetEarliest, checker.TargetLatest, checker.TargetTime,
		checker.TargetOffsets, checker.TargetSnapshot}[k]
}

func cursors(list []call.PartitionOffset) []checker.Cursor {
	var out []checker.Cursor
	for _, p := range list {
		out = append(out, checker.Cursor{Partition: p.Partition, Offset: p.Offset})
	}
	return out
}

func (r *recorder) seek(client checker.ClientID, c *call.Seek) answer {
	i := r.begin(client, checker.Op{Seek: &checker.Seek{Subscription: c.Subscription, To: target(c.To.Kind),
		Time: c.To.Time, Offsets: cursors(c.Offsets), Snapshot: c.Snapshot, Partitions: slices.Clone(c.Partitions)}})
	return func(result call.ClientResult, err *model.Error) {
		if op, ok := r.end(i, err); ok {
			res := result.(*call.SeekResult)
			op.Seek.Generation, op.Seek.Cursors = res.Generation, cursors(res.Cursors)
		}
	}
}

func (r *recorder) describe(client checker.ClientID, c *call.GetSubscription) answer {
	i := r.begin(client, checker.Op{Describe: &checker.Describe{Subscription: c.Subscription}})
	return func(result call.ClientResult, err *model.Error) {
		op, ok := r.end(i, err)
		if !ok {
			return
		}
		for _, p := range result.(*call.GetSubscriptionResult).Partitions {
			if p.Err == nil {
				op.Describe.Partitions = append(op.Describe.Partitions, checker.SubscriptionState{
					Partition: p.Partition, Cursor: p.Cursor, Generation: p.Fence, HighWatermark: p.HighWatermark,
					LogStart: p.LogStart, Lag: p.Lag})
			}
		}
	}
}

func (r *recorder) snapshot(client checker.ClientID, c *call.Snapshot) answer {
	i := r.begin(client, checker.Op{Describe: &checker.Describe{Subscription: c.Subscription, Snapshot: c.Name}})
	return func(result call.ClientResult, err *model.Error) {
		op, ok := r.end(i, err)
		if !ok {
			return
		}
		for _, p := range result.(*call.SnapshotsResult).Snapshots[0].Cursors {
			op.Describe.Partitions = append(op.Describe.Partitions,
				checker.SubscriptionState{Partition: p.Partition, Cursor: p.Offset})
		}
	}
}

func (r *recorder) describeTopic(client checker.ClientID, c *call.GetTopic) answer {
	i := r.begin(client, checker.Op{DescribeTopic: &checker.DescribeTopic{Topic: c.Name}})
	return func(result call.ClientResult, err *model.Error) {
		op, ok := r.end(i, err)
		if !ok {
			return
		}
		for _, p := range result.(*call.GetTopicResult).Partitions {
			if p.Err == nil {
				op.DescribeTopic.Partitions = append(op.DescribeTopic.Partitions,
					checker.TopicState{Partition: p.Partition, HighWatermark: p.HighWatermark, LogStart: p.LogStart})
			}
		}
	}
}

func (r *recorder) openProducer(client checker.ClientID, c *call.OpenProducerCall) answer {
	i := r.begin(client, checker.Op{OpenProducer: &checker.OpenProducer{Name: c.Name, Fence: c.Fence,
		Topic: c.Topic, Partitions: slices.Clone(c.Partitions)}})
	return func(result call.ClientResult, err *model.Error) {
		if op, ok := r.end(i, err); ok {
			res := result.(*call.OpenProducerCallResult)
			op.OpenProducer.Producer, op.OpenProducer.Epoch = res.ID, res.Epoch
		}
	}
}

func (r *recorder) create(client checker.ClientID, c checker.Create) answer {
	i := r.begin(client, checker.Op{Create: &c})
	return func(_ call.ClientResult, err *model.Error) { r.end(i, err) }
}
