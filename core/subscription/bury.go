package subscription

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// Attributes that a dead letter carries beside its own.
const (
	AttributeSubscription = "tapedeck.dead-letter.subscription"
	AttributeTopic        = "tapedeck.dead-letter.topic"
	AttributePartition    = "tapedeck.dead-letter.partition"
	AttributeOffset       = "tapedeck.dead-letter.offset"
	AttributeAttempts     = "tapedeck.dead-letter.attempts"
	AttributeReason       = "tapedeck.dead-letter.reason"
)

// buryRetry is the pause after a step that failed: a topic without a leader may
// stay so for long, and nothing is dropped meanwhile.
const buryRetry = 500 * time.Millisecond

// burial is the leader's work on one partition's dead letters, step by step:
// a producer is opened, the message read, its move replicated, its copy
// published, its end replicated.
type burial struct {
	ask      uint64 // under way; 0: none
	busy     bool   // an entry is under way
	retryAt  model.Mono
	producer model.ProducerID // opened here, not yet in the state
	epoch    model.Epoch
	start    bool // the copy may begin its producer's memory anew
	trouble  *model.Error
	offset   model.Offset // of the message it is about
	since    model.Mono   // works on that one
}

// asked names the partition an ask is for.
type asked struct {
	id     model.SubscriptionID
	source model.Partition
}

// bury takes every partition's dead letters one step further.
func (m *Machine) bury(h group.Host, st *subscription, ls *leadSubscription) {
	t := m.terms(h, st.id)
	for i := range st.partitions {
		p, part := model.Partition(i), &st.partitions[i]
		offset, condemned := part.condemned(&t)
		if mv := part.letters.move; mv != nil {
			offset = mv.offset
		}
		b := ls.burials[p]
		if !condemned && part.letters.move == nil {
			if b != nil && b.ask == 0 && !b.busy {
				delete(ls.burials, p)
			}
			continue
		}
		if b == nil {
			b = &burial{offset: offset, since: h.Now()}
			ls.burials[p] = b
		}
		if offset != b.offset {
			b.offset, b.since = offset, h.Now()
		}
		if b.ask != 0 || b.busy || h.Now() < b.retryAt {
			continue
		}
		if part.letters.move != nil {
			m.publishLetter(h, st, p, b)
		} else {
			m.openLetter(h, st, p, b, offset)
		}
	}
	m.noteWaiting(h, st, ls)
}

// publishLetter sends the copy. Only a catalog at least as new as the one that
// named the topic may say that it is gone.
func (m *Machine) publishLetter(h group.Host, st *subscription, p model.Partition, b *burial) {
	mv := st.partitions[p].letters.move
	topic, ok := h.Catalog().TopicByID(mv.topic)
	switch {
	case ok && int(mv.partition) < len(topic.Partitions):
		// The leader there stamps the bytes it is given: it gets its own.
		m.ask(h, st.id, p, b, topic.Partitions[mv.partition],
			&call.Append{Batch: slices.Clone(mv.batch), Start: b.start})
	case !ok && h.Catalog().Version() >= mv.born:
		m.endLetter(h, st, p, b, true)
	default:
		b.retryAt = h.Now().Add(buryRetry)
	}
}

// openLetter gets the producer, then the message.
func (m *Machine) openLetter(h group.Host, st *subscription, p model.Partition, b *burial, offset model.Offset) {
	source, ok := h.Catalog().TopicByID(st.topic)
	if _, to := m.letterTopic(h, st); !ok || !to || int(p) >= len(source.Partitions) {
		b.retryAt = h.Now().Add(buryRetry)
		return
	}
	if st.partitions[p].letters.producer == 0 && b.producer == 0 {
		m.ask(h, st.id, p, b, model.MetaGroup,
			&call.OpenProducer{Name: fmt.Sprintf("dead-letters.%d.%d", st.id, p)})
		return
	}
	m.ask(h, st.id, p, b, source.Partitions[p], &call.Read{Offset: offset, MaxBytes: 1})
}

func (m *Machine) letterTopic(h group.Host, st *subscription) (*model.Topic, bool) {
	def, ok := h.Catalog().SubscriptionByID(st.id)
	if !ok {
		return nil, false
	}
	t, ok := h.Catalog().Topic(def.Settings.DeadLetterTopic)
	return t, ok && len(t.Partitions) > 0
}

func (m *Machine) ask(h group.Host, id model.SubscriptionID, p model.Partition, b *burial,
	g model.GroupID, req call.Request) {
	m.lastAsk++
	b.ask = m.lastAsk
	m.lead.asked[b.ask] = asked{id, p}
	h.Ask(b.ask, g, req)
}

// AskDone implements group.Asker.
func (m *Machine) AskDone(h group.Host, ask uint64, resp call.Response, err *model.Error) {
	if m.lead == nil {
		return
	}
	a, ok := m.lead.asked[ask]
	delete(m.lead.asked, ask)
	st, ls := m.state.subscriptions[a.id], m.lead.subscriptions[a.id]
	if !ok || st == nil || ls == nil || ls.burials[a.source] == nil || ls.burials[a.source].ask != ask {
		return
	}
	b := ls.burials[a.source]
	b.ask, b.trouble = 0, err
	switch resp := resp.(type) {
	case *call.ProducerOpened:
		b.producer, b.epoch = resp.ID, resp.Epoch
	case *call.ReadResult:
		b.trouble = m.beginLetter(h, st, a.source, b, resp)
	case *call.Appended:
		if st.partitions[a.source].letters.move != nil {
			m.endLetter(h, st, a.source, b, false)
		}
	}
	switch {
	case b.trouble == nil:
	case b.trouble.Reason == model.ReasonSequenceUnknown && !b.start:
		b.start = true
	case b.trouble.Reason == model.ReasonOffsetTooOld:
		// Retention took the message before its move began: like any other.
		b.retryAt = h.Now().Add(buryRetry)
		m.propose(h, &skipCommand{id: st.id, to: []place{{a.source, b.trouble.Start}}})
	default:
		b.retryAt = h.Now().Add(buryRetry)
	}
	m.advance(h, a.id)
}

// beginLetter makes the copy of a message that was read and replicates its move.
func (m *Machine) beginLetter(h group.Host, st *subscription, p model.Partition, b *burial,
	res *call.ReadResult) *model.Error {
	part, t := &st.partitions[p], m.terms(h, st.id)
	offset, condemned := part.condemned(&t)
	to, ok := m.letterTopic(h, st)
	if !condemned || !ok || part.letters.move != nil {
		return nil
	}
	msg, err := m.messageAt(res, offset)
	if err != nil {
		return err
	}
	target := p % model.Partition(len(to.Partitions))
	if len(msg.Key) > 0 {
		target = batch.PartitionFor(msg.Key, uint32(len(to.Partitions)))
	}
	l := part.letters
	if l.producer == 0 {
		l = letters{producer: b.producer, epoch: b.epoch}
	}
	msg.Attributes = letterAttributes(h, st, p, offset, part.attempts(offset), &t, msg.Attributes)
	sequence := l.sequence(to.ID, target)
	c := &letterCommand{id: st.id, source: p, fence: part.fence, producer: l.producer, epoch: l.epoch,
		move: move{offset: offset, topic: to.ID, born: h.Catalog().Version(), partition: target, sequence: sequence,
			batch: batch.Encode([]batch.Message{msg},
				batch.Options{Producer: l.producer, Epoch: l.epoch, Sequence: sequence})}}
	b.start = false
	b.busy = m.propose(h, c)
	if !b.busy {
		b.retryAt = h.Now().Add(proposeRetry)
	}
	return nil
}

// messageAt finds a message in what was read.
func (m *Machine) messageAt(res *call.ReadResult, offset model.Offset) (batch.Message, *model.Error) {
	views, err := batch.Split(res.Run)
	for _, v := range views {
		if err != nil || offset < v.Base() || offset >= v.Next() {
			continue
		}
		var ms []batch.Message
		if ms, err = v.Messages(m.config.Unpack); err == nil {
			return ms[offset-v.Base()], nil
		}
	}
	if err != nil {
		return batch.Message{}, model.Errorf(model.DataLoss, "offset %d: %v", offset, err)
	}
	return batch.Message{}, model.Errorf(model.Unavailable, "offset %d cannot be read yet", offset)
}

func letterAttributes(h group.Host, st *subscription, p model.Partition, offset model.Offset, attempts uint32,
	t *terms, own []batch.Attribute) []batch.Attribute {
	ref, topic := st.ref, ""
	if source, ok := h.Catalog().TopicByID(st.topic); ok {
		topic = source.Name
	}
	added := map[string]string{
		AttributeSubscription: ref, AttributeTopic: topic,
		AttributePartition: strconv.FormatUint(uint64(p), 10), AttributeOffset: strconv.FormatUint(uint64(offset), 10),
		AttributeAttempts: strconv.FormatUint(uint64(attempts), 10),
		AttributeReason:   fmt.Sprintf("not acknowledged in %d deliveries; %d are allowed", attempts, t.attempts),
	}
	out := slices.DeleteFunc(slices.Clone(own), func(a batch.Attribute) bool { _, ok := added[a.Name]; return ok })
	for _, name := range slices.Sorted(maps.Keys(added)) {
		out = append(out, batch.Attribute{Name: name, Value: added[name]})
	}
	slices.SortFunc(out, func(a, b batch.Attribute) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// endLetter replicates the end of a move.
func (m *Machine) endLetter(h group.Host, st *subscription, p model.Partition, b *burial, lost bool) {
	mv := st.partitions[p].letters.move
	b.busy = m.propose(h, &letteredCommand{id: st.id, source: p, topic: mv.topic, target: mv.partition,
		sequence: mv.sequence, lost: lost})
	if !b.busy {
		b.retryAt = h.Now().Add(proposeRetry)
	}
}

// letterApplied goes on after a move's beginning or end.
func (m *Machine) letterApplied(h group.Host, id model.SubscriptionID, p model.Partition) {
	if ls := m.lead.subscriptions[id]; ls != nil {
		if b := ls.burials[p]; b != nil {
			b.busy = false
		}
	}
	m.advance(h, id)
}
