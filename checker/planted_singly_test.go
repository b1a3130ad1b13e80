package checker

import "github.com/tapedeck/tapedeck/core/model"

// work is a topic of ten messages of one key and a shared subscription on it.
func work(keyed bool) *book {
	b := filled()
	b.h.Ops[1].Create = &Create{Subscription: "t/s", Start: TargetEarliest, Shared: true, KeyOrdered: keyed, Attempts: 3,
		DeadLetters: "dead", Lease: 1000}
	return b
}

// give is a pull of a shared subscription.
func (b *book) give(s span, member model.MemberID, delivery uint64, from, to model.Offset, attempt uint32) *Op {
	op := b.pull(s, member, 1, from, to)
	op.Pull.Delivery = delivery
	for i := range op.Pull.Messages {
		op.Pull.Messages[i].Attempt = attempt
	}
	return op
}

func (b *book) ackOne(s span, member model.MemberID, offsets ...model.Offset) *Op {
	return b.op(s, Op{Ack: &Ack{Subscription: "t/s", Member: member, Generation: 1, Offsets: offsets}})
}

// grave sets the final dead letters, by payload.
func (b *book) grave(payloads ...uint64) {
	l := FinalLog{Topic: "dead", HighWatermark: model.Offset(len(payloads))}
	for i, p := range payloads {
		l.Messages = append(l.Messages, LogMessage{Offset: model.Offset(i), Payload: p, AppendTime: 1})
	}
	b.final.Logs = append(b.final.Logs, l)
}

// done adds that all of a shared subscription was acked but what is excepted.
func (b *book) done(at Moment, except model.Offset) *book {
	for o := range model.Offset(10) {
		if o != except {
			b.ackOne(span{at, at + 1}, "m1", o)
		}
	}
	b.final.Subscriptions = []FinalSubscription{{"t/s", []Cursor{{0, 10}}}}
	b.final.Drained = true
	return b
}

func init() {
	planted = append(planted, []struct {
		verdict string
		name    string
		make    func() *book
	}{
		{TwoHolders, "given again before the lease ended", func() *book {
			b := work(false)
			b.give(span{1000, 1010}, "m1", 1, 0, 4, 1)
			b.give(span{1500, 1510}, "m2", 2, 3, 4, 2)
			return b
		}},
		{AttemptsWrong, "a death was not counted", func() *book {
			b := work(false)
			b.give(span{1000, 1010}, "m1", 1, 0, 4, 1)
			b.give(span{3000, 3010}, "m2", 2, 3, 4, 1)
			return b
		}},
		{AttemptsWrong, "more than are allowed", func() *book {
			b := work(false)
			b.give(span{1000, 1010}, "m1", 1, 0, 1, 4)
			return b
		}},
		{KeyOrder, "the second of a key is given to another", func() *book {
			b := work(true)
			b.give(span{1000, 1010}, "m1", 1, 0, 1, 1)
			b.give(span{1020, 1030}, "m2", 2, 1, 2, 1)
			return b
		}},
		{Redelivered, "a single ack was forgotten", func() *book {
			b := work(false)
			b.give(span{1000, 1010}, "m1", 1, 0, 4, 1)
			b.ackOne(span{1020, 1030}, "m1", 2)
			b.give(span{3000, 3010}, "m2", 2, 2, 3, 2)
			return b
		}},
		{LostMessage, "the dead letter was dropped", func() *book {
			b := work(false)
			b.give(span{1000, 1010}, "m1", 1, 0, 10, 1)
			b.grave()
			return b.done(1020, 4)
		}},
		{DeadLetterTwice, "two copies without a seek", func() *book {
			b := work(false)
			for i := range Moment(3) {
				b.give(span{1000 + 2000*i, 1010 + 2000*i}, "m1", uint64(1+i), 0, 10, uint32(1+i))
			}
			b.grave(104, 104)
			return b.done(6000, 4)
		}},
		{DeadLetterEarly, "after one delivery of three", func() *book {
			b := work(false)
			b.give(span{1000, 1010}, "m1", 1, 0, 10, 1)
			b.grave(104)
			return b.done(6000, 4)
		}},
	}...)
}

func init() {
	correct["a shared subscription"] = func() *book {
		b := work(true)
		b.give(span{1000, 1010}, "m1", 1, 0, 3, 1)
		b.op(span{1020, 1030}, Op{Nack: &Nack{Subscription: "t/s", Member: "m1", Generation: 1, Offset: 1}})
		b.ackOne(span{1025, 1030}, "m1", 0)
		b.give(span{1040, 1050}, "m2", 2, 1, 2, 2)
		b.ackOne(span{1060, 1070}, "m2", 1)
		b.op(span{1080, 1090}, Op{Leave: &Leave{Subscription: "t/s", Member: "m2"}})
		b.give(span{1100, 1110}, "m1", 3, 2, 10, 1)
		for i := range Moment(2) {
			b.give(span{3000 + 2000*i, 3010 + 2000*i}, "m1", uint64(4+i), 4, 5, uint32(2+i))
		}
		b.grave(104)
		return b.done(7000, 4)
	}
}
