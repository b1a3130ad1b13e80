package session

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// outgoing is a batch on its way. Once sent, its messages and sequence are fixed.
type outgoing struct {
	ordinal    uint64 // among the partition's batches, once sent
	messages   []pending
	bytes      int
	since      model.Mono // its first message's
	due        model.Mono // end of lingering
	mapVersion uint32     // 0: the partition is named

	sent     bool
	sequence model.Sequence
	id       uint64     // of the request under way, 0: none
	retryAt  model.Mono // after a failed attempt
	failures int
	open     bool // some attempt may have been appended, or may be yet
	start    bool // go on although the partition forgot this producer
	lastErr  *model.Error
}

func (b *outgoing) maybe() bool { return b.open || b.id != 0 }

// partition is a producer's state towards one partition.
//
// queue holds sealed batches, oldest first: first those sent, by sequence, then
// those never sent. After a failed attempt the partition recovers: only the
// oldest batch is sent, until it is acknowledged, for what follows it would be
// refused as a gap. When a batch that was sent is given up, its sequence is a
// hole that nothing may fill with other messages: the partition resets, that is
// waits for its requests under way and goes on at sequence 0 of a newer epoch.
//
// Requests that overtake each other on the way are refused as gaps and sent
// twice. So the window, how many may be under way, halves at a gap and grows by
// one after every windowStep batches in order.
type partition struct {
	number     model.Partition
	epoch      model.Epoch
	sequence   model.Sequence // of the next batch sent for the first time
	batches    uint64         // sent for the first time so far
	queue      []*outgoing
	filling    *outgoing // open for more messages
	inFlight   int
	window     int // 1 up to the configured number in flight
	smooth     int // batches acknowledged since the last gap or growth
	recovering bool
	resetting  bool
}

// windowStep is how many batches in order make the window grow.
const windowStep = 64

// next is the batch to be sent next and when; Never if that depends on an answer.
func (q *partition) next(p *Producer) (*outgoing, model.Mono) {
	if q.resetting || q.inFlight >= q.window || (q.epoch == 0 && !p.cfg.NoProducer) {
		return nil, model.Never
	}
	for i, b := range q.queue {
		switch {
		case b.id != 0:
			continue
		case q.recovering && i > 0:
			return nil, model.Never
		case b.sent:
			return b, b.retryAt
		case q.recovering || q.stretched():
			return nil, model.Never
		}
		return b, 0
	}
	switch {
	case q.filling == nil || q.recovering || q.stretched():
		return nil, model.Never
	case p.flush:
		return q.filling, 0
	}
	return q.filling, q.filling.due
}

// maxStretch bounds how many batches go out after one that is not decided yet. A
// partition remembers the last model.ProducerMemory batches of a producer: the
// retry of an older one could not be told from a new one any more.
const maxStretch = model.ProducerMemory / 2

func (q *partition) stretched() bool {
	return len(q.queue) > 0 && q.queue[0].sent && q.batches-q.queue[0].ordinal >= maxStretch
}

func (q *partition) seal() {
	q.queue = append(q.queue, q.filling)
	q.filling = nil
}

func (q *partition) all() []*outgoing {
	if q.filling == nil {
		return q.queue
	}
	return append(slices.Clone(q.queue), q.filling)
}

func (q *partition) oldest() *outgoing {
	if len(q.queue) > 0 {
		return q.queue[0]
	}
	return q.filling
}

func (q *partition) remove(b *outgoing) {
	if b == q.filling {
		q.filling = nil
		return
	}
	i := slices.Index(q.queue, b)
	if i < 0 {
		return
	}
	if i == 0 {
		q.recovering = false // whatever the oldest was waited for, it is decided
	}
	q.queue = slices.Delete(q.queue, i, i+1)
}

// takeUnsent takes away the messages whose partition is not pinned yet.
func (q *partition) takeUnsent() []pending {
	var out []pending
	keep := q.queue[:0]
	for _, b := range q.all() {
		if b.sent {
			keep = append(keep, b)
			continue
		}
		out = append(out, b.messages...)
	}
	clear(q.queue[len(keep):])
	q.queue, q.filling = keep, nil
	return out
}

// send makes the request of a batch's next attempt.
func (p *Producer) send(now model.Mono, q *partition, b *outgoing) Send {
	if b == q.filling {
		q.seal()
		if b.messages[len(b.messages)-1].to == p.sticky {
			p.rotate()
		}
	}
	if !b.sent {
		b.sent = true
		b.ordinal = q.batches
		q.batches++
		b.sequence = q.sequence
		q.sequence += model.Sequence(len(b.messages))
	}
	messages := make([]batch.Message, len(b.messages))
	for i := range messages {
		messages[i] = b.messages[i].msg
	}
	o := batch.Options{MapVersion: b.mapVersion, Compression: p.cfg.Compression, Pack: p.cfg.Pack}
	if !p.cfg.NoProducer {
		o.Producer, o.Epoch, o.Sequence = p.id, q.epoch, b.sequence
	}
	b.id = p.nextID()
	q.inFlight++
	p.flights[b.id] = flight{q, b}
	left := b.since.Add(p.cfg.DeliveryTimeout).Sub(now)
	return Send{
		ID: b.id, Deadline: min(p.cfg.TryTimeout, left),
		Call:  &call.PublishBatch{Topic: p.cfg.Topic, Partition: q.number, Batch: batch.Encode(messages, o), Start: b.start},
		Route: Route{Topic: p.cfg.Topic, Partition: q.number, HasPartition: true},
	}
}

// published is the good end of a batch.
func (p *Producer) published(q *partition, b *outgoing, r *call.PublishBatchResult) {
	if !slices.Contains(q.queue, b) {
		return // given up before; its outcome said that it may have been appended
	}
	q.remove(b)
	if q.smooth++; q.smooth >= windowStep {
		q.window, q.smooth = min(q.window+1, p.cfg.InFlight), 0
	}
	for i, m := range b.messages {
		p.outcome(m, Outcome{Partition: q.number, Offset: r.Base + model.Offset(i), Duplicate: r.Duplicate})
	}
}

// refusedOrOpen handles an attempt that brought no offset.
func (p *Producer) refusedOrOpen(now model.Mono, q *partition, b *outgoing, err *model.Error) {
	at := slices.Index(q.queue, b)
	if at < 0 {
		return
	}
	b.lastErr = err
	b.failures++
	how := judge(err)
	b.open = b.open || how == open
	switch {
	case err.Reason == model.ReasonFenced:
		p.fail(err)
		return
	case how == final, how == open && p.cfg.NoProducer:
		q.remove(b)
		if how == open {
			err = model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, 0,
				"the request went without an answer, and without a producer it is not sent twice: %s", err.Error())
		}
		p.drop(q, b, err)
		// SEQUENCE_TOO_OLD leaves no hole: the sequence was appended long ago.
		if !p.cfg.NoProducer && err.Reason != model.ReasonSequenceTooOld {
			q.resetting = true
		}
		return
	}
	if err.Reason == model.ReasonSequenceGap && !q.recovering {
		q.window, q.smooth = max(q.window/2, 1), 0
	}
	q.recovering = true
	b.retryAt = now.Add(p.backoff.after(b.failures, err))
	switch err.Reason {
	case model.ReasonSequenceGap, model.ReasonSequenceUnknown:
		// Overtaken by a batch behind it: wait for the oldest, not for the clock.
		if at > 0 || b.failures == 1 {
			b.retryAt = now
		}
		// The partition forgot this producer. All before this batch was
		// acknowledged, and no attempt of it can have been appended: starting
		// anew here loses nothing and repeats nothing.
		b.start = b.start || (err.Reason == model.ReasonSequenceUnknown && at == 0 && !b.open)
	case model.ReasonStaleMap:
		// The batch was sent, so its partition stays; named, it needs no map.
		b.mapVersion = 0
		p.stale = true
	}
}

// drop gives a batch up.
func (p *Producer) drop(q *partition, b *outgoing, err *model.Error) {
	for _, m := range b.messages {
		p.outcome(m, Outcome{Partition: q.number, Err: err, Maybe: b.maybe()})
	}
}

// settle brings a partition without an epoch, or with a hole in its sequences,
// onto the newest epoch, once nothing of it is under way.
func (p *Producer) settle(q *partition) {
	if p.cfg.NoProducer || p.fatal != nil {
		return
	}
	if q.epoch == 0 {
		q.epoch = p.epoch
	}
	if !q.resetting || q.inFlight > 0 {
		return
	}
	for _, b := range slices.Clone(q.queue) {
		if b.sent && b.open {
			// It came after the hole, or filled it: only the partition knows.
			q.remove(b)
			p.drop(q, b, model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, 0,
				"a batch before it was given up, and this one may have been appended: %s", b.lastErr.Error()))
			continue
		}
		b.sent, b.start, b.retryAt = false, false, 0
	}
	if q.epoch == p.epoch {
		p.more = true
		return
	}
	q.epoch, q.sequence = p.epoch, 0
	q.recovering, q.resetting = false, false
}
