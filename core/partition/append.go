package partition

import (
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// append takes a publish: check, dedupe, stamp, propose. The answer comes with
// apply, or at once when nothing has to be appended.
func (m *Machine) append(h group.Host, ref group.Ref, req *call.Append) {
	if m.lead == nil {
		h.Reply(ref, nil, h.NotLeader())
		return
	}
	if v := m.admit(h, ref, req, true); v != nil && v.Producer() != 0 {
		m.follow(h, v.Producer())
	}
}

// admit is append for a leader; patient says that the batch may wait for one
// before it. It returns the batch if it was proposed.
func (m *Machine) admit(h group.Host, ref group.Ref, req *call.Append, patient bool) batch.View {
	l := m.lead
	v, err := m.checkBatch(req.Batch)
	if err != nil {
		h.Reply(ref, nil, err)
		return nil
	}
	if l.broken {
		h.Reply(ref, nil, unavailable("the leader is taking its bearings after an entry that was refused"))
		return nil
	}
	if l.waiting >= m.cfg.Limits.Waiting || m.cfg.Choice.Rare(choice.PublishThrottled) {
		h.Reply(ref, nil, throttled(retrySoon, "too many publishes wait for this partition"))
		return nil
	}
	to := standing{}
	if v.Producer() != 0 {
		if patient && m.wait(h, ref, v, req.Start) {
			return nil
		}
		if !m.dedupe(h, ref, v, req.Start) {
			return nil
		}
		to = standing{true, v.Epoch(), v.Sequence() + model.Sequence(v.Count())}
	}
	if err := m.checkMap(h, v); err != nil {
		h.Reply(ref, nil, err)
		return nil
	}
	if !m.proposeBatch(h, ref, v, req.Start, to) {
		return nil
	}
	return v
}

// wait keeps a batch that came before its predecessor.
func (m *Machine) wait(h group.Host, ref group.Ref, v batch.View, start bool) bool {
	f := fitOf(m.lead.standing(&m.st, v.Producer()), v, start)
	if f != fitGap && f != fitUnknown || m.cfg.Choice.Rare(choice.EarlyRefused) ||
		!m.lead.keep(h.Now(), ref, v, start) {
		return false
	}
	group.Hit(h, probe.BatchWaits)
	m.wake(h, m.lead.early[0].until)
	return true
}

// proposeBatch stamps and proposes; to is the producer's standing after it. It
// has answered if it returns false.
func (m *Machine) proposeBatch(h group.Host, ref group.Ref, v batch.View, start bool, to standing) bool {
	l := m.lead
	if l.activeBytes > 0 && (l.activeBytes+uint64(len(v)) > m.rollBytes() || m.cfg.Choice.Rare(choice.RollNow)) {
		group.Hit(h, probe.SegmentRolledBySize)
		m.proposeRoll(h)
	}
	if v.StampFlags()&batch.Stamped != 0 {
		// Stamped before: a raft log may hold these very bytes.
		v = v.Clone()
	}
	flags := batch.Stamped
	if start {
		flags |= batch.StampStart
	}
	at, untrusted := l.stamp(h)
	switch {
	case untrusted:
		flags |= batch.StampUntrusted
		group.Hit(h, probe.TimeUntrusted)
	case at > h.Wall():
		group.Hit(h, probe.TimeHeld)
	}
	v.StampWith(l.next, at, flags)
	if !h.Propose(v) {
		h.Reply(ref, nil, throttled(retrySoon, "replication is behind"))
		return false
	}
	l.clock.move(at, untrusted)
	p := l.push(proposal{data: v, producer: v.Producer(), batch: true}, ref)
	if v.Producer() != 0 {
		l.note(&m.st, p, to)
	}
	l.next = v.Next()
	if l.activeBytes == 0 {
		l.activeFirst = at
	}
	l.activeBytes += uint64(len(v))
	if l.tendAt == model.Never {
		l.tendAt = m.due(h)
		m.wake(h, l.tendAt)
	}
	return true
}

func (m *Machine) checkBatch(b []byte) (batch.View, *model.Error) {
	if len(b) > m.cfg.Limits.MaxBatchBytes {
		return nil, model.Invalid("batch", "has %d bytes; at most %d are allowed", len(b), m.cfg.Limits.MaxBatchBytes)
	}
	v, err := batch.ParseHeader(b)
	if err != nil {
		return nil, model.Invalid("batch", "cannot be read: %v", err)
	}
	if len(v) != len(b) {
		return nil, model.Invalid("batch", "is followed by %d bytes; send one batch at a time", len(b)-len(v))
	}
	return v, nil
}

// checkMap refuses a batch split by key under an older partition count than
// this node knows: the key may belong to another partition now.
func (m *Machine) checkMap(h group.Host, v batch.View) *model.Error {
	if v.MapVersion() == 0 {
		return nil
	}
	t, ok := h.Catalog().TopicByID(m.cfg.Topic)
	if !ok || v.MapVersion() >= t.MapVersion {
		return nil
	}
	group.Hit(h, probe.StaleMap)
	return model.Reasoned(model.Unavailable, model.ReasonStaleMap, retrySoon,
		"the batch was split by version %d of the partition count, now it is version %d; split it again",
		v.MapVersion(), t.MapVersion)
}

// dedupe says whether the batch is the producer's next. If not, it has answered:
// the first attempt's offset, an error, or the promise to answer along with the
// first attempt, which is still under way.
func (m *Machine) dedupe(h group.Host, ref group.Ref, v batch.View, start bool) bool {
	l, id := m.lead, v.Producer()
	s := l.standing(&m.st, id)
	switch fitOf(s, v, start) {
	case fits:
		if !s.known && m.st.producers.get(id) == nil && l.ahead[id] == nil &&
			l.tableFull(&m.st, m.cfg.Limits.MaxProducers) {
			h.Reply(ref, nil, throttled(retryLater, "this partition remembers as many producers as it may"))
			return false
		}
		return true
	case fitInvalid:
		h.Reply(ref, nil, model.Invalid("producer", "epoch %d and sequence %d cannot be: epochs start at 1, "+
			"and the sequence must not pass its end", v.Epoch(), v.Sequence()))
	case fitFenced:
		group.Hit(h, probe.EpochFenced)
		h.Reply(ref, nil, sequenceError(model.ReasonFenced, uint64(s.epoch),
			"producer %d has epoch %d by now; epoch %d is fenced: open the producer again", id, s.epoch, v.Epoch()))
	case fitUnknown:
		h.Reply(ref, nil, sequenceError(model.ReasonSequenceUnknown, 0,
			"nothing is known of producer %d, epoch %d, which must start at 0 and not at %d; "+
				"if it was here before, its memory expired: go on with start", id, v.Epoch(), v.Sequence()))
	case fitGap:
		group.Hit(h, probe.SequenceGap)
		h.Reply(ref, nil, sequenceError(model.ReasonSequenceGap, uint64(s.next),
			"sequence %d was to come, not %d; send what is missing first", s.next, v.Sequence()))
	case fitPast:
		m.repeat(h, ref, v, s)
	}
	return false
}

// repeat answers a batch that begins below the producer's next sequence.
func (m *Machine) repeat(h group.Host, ref group.Ref, v batch.View, s standing) {
	l, id, oldest := m.lead, v.Producer(), s.next
	if a := l.ahead[id]; a != nil {
		if p := a.find(v); p != nil {
			group.Hit(h, probe.RetryJoins)
			l.attach(p, ref)
			return
		}
		for _, p := range a.batches {
			if w := p.view(); w.Epoch() == v.Epoch() {
				oldest = min(oldest, w.Sequence())
			}
		}
	}
	if p := l.applied(&m.st, id); p != nil && p.epoch == v.Epoch() {
		if b := p.find(v.Sequence(), v.Count()); b != nil {
			group.Hit(h, probe.RetryRemembered)
			if b.base < l.began {
				group.Hit(h, probe.RetryAfterFailover)
			}
			h.Reply(ref, &call.Appended{Base: b.base, AppendTime: b.time, Duplicate: true}, nil)
			return
		}
		oldest = min(oldest, p.oldest())
	}
	if v.Sequence() < oldest {
		group.Hit(h, probe.SequenceTooOld)
		h.Reply(ref, nil, sequenceError(model.ReasonSequenceTooOld, uint64(s.next),
			"sequence %d is older than what is remembered, from %d on; whether it was stored cannot be told",
			v.Sequence(), oldest))
		return
	}
	h.Reply(ref, nil, model.Invalid("producer.sequence", "%d with %d messages overlaps batches sent before; "+
		"a retry must repeat a batch as it was, and the next sequence is %d", v.Sequence(), v.Count(), s.next))
}

// fence takes an OpenProducer's fence.
func (m *Machine) fence(h group.Host, ref group.Ref, req *call.Fence) {
	l, id := m.lead, req.Producer
	switch {
	case l == nil:
		h.Reply(ref, nil, h.NotLeader())
		return
	case id == 0 || req.Epoch == 0:
		h.Reply(ref, nil, model.Invalid("producer", "has id %d and epoch %d; both start at 1", id, req.Epoch))
		return
	case l.broken:
		h.Reply(ref, nil, unavailable("the leader is taking its bearings after an entry that was refused"))
		return
	case l.waiting >= m.cfg.Limits.Waiting:
		h.Reply(ref, nil, throttled(retrySoon, "too many publishes wait for this partition"))
		return
	}
	if p := l.applied(&m.st, id); p != nil && p.epoch >= req.Epoch {
		h.Reply(ref, &call.Empty{}, nil)
		return
	}
	s := l.standing(&m.st, id)
	if !s.known && m.st.producers.get(id) == nil && l.ahead[id] == nil &&
		l.tableFull(&m.st, m.cfg.Limits.MaxProducers) {
		h.Reply(ref, nil, throttled(retryLater, "this partition remembers as many producers as it may"))
		return
	}
	p := m.propose(h, ref, command{kind: cmdFence, producer: id, epoch: req.Epoch})
	if p == nil {
		h.Reply(ref, nil, throttled(retrySoon, "replication is behind"))
		return
	}
	if !s.known || s.epoch < req.Epoch {
		s = standing{true, req.Epoch, 0}
	}
	l.note(&m.st, p, s)
}

func sequenceError(reason model.Reason, expected uint64, format string, args ...any) *model.Error {
	err := model.Reasoned(model.FailedPrecondition, reason, 0, format, args...)
	err.Expected = expected
	return err
}

func unavailable(why string) *model.Error {
	err := model.Errorf(model.Unavailable, "%s; try again", why)
	err.RetryAfter = retrySoon
	return err
}
