package subscription

import (
	"fmt"
	"time"

	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// A dead letter whose topic is gone, or takes nothing, holds its partition's
// cursor for as long as that lasts. Nothing is dropped, and nothing is silent:
// Describe says it, the operator is told once, and a gauge counts the messages.

// waitsAfter is how long a topic may take for a dead letter before it is called
// waiting: longer than an election.
const waitsAfter = 10 * time.Second

// waits says why a dead letter is not in its topic; empty: it is not for long.
func (m *Machine) waits(h group.Host, st *subscription, b *burial) string {
	def, ok := h.Catalog().SubscriptionByID(st.id)
	if b == nil || !ok || def.Settings.DeadLetterTopic == "" {
		return ""
	}
	name := def.Settings.DeadLetterTopic
	if _, there := h.Catalog().Topic(name); !there {
		return fmt.Sprintf("waits: dead-letter topic %s is gone, and offset %d is out of attempts; "+
			"create it again, or update the subscription to name another", name, b.offset)
	}
	since := h.Now().Sub(b.since)
	if since < waitsAfter {
		return ""
	}
	why := "no answer"
	if b.trouble != nil {
		why = b.trouble.Message
	}
	return fmt.Sprintf("waits: offset %d is out of attempts, and dead-letter topic %s has not taken it for %v: %s",
		b.offset, name, since.Round(time.Second), why)
}

// noteWaiting tells the operator when a subscription's dead letters begin to
// wait, of the first of them, and when none does any more.
func (m *Machine) noteWaiting(h group.Host, st *subscription, ls *leadSubscription) {
	if len(ls.burials) == 0 && !ls.notedWaiting {
		return
	}
	for i := range st.partitions {
		why := m.waits(h, st, ls.burials[model.Partition(i)])
		if why == "" {
			continue
		}
		if !ls.notedWaiting {
			ls.notedWaiting = true
			group.Note(h, fmt.Sprintf("subscription %s, partition %d %s", st.ref, i, why))
		}
		return
	}
	if ls.notedWaiting {
		ls.notedWaiting = false
		group.Note(h, fmt.Sprintf("subscription %s: no message waits for its dead-letter topic any more", st.ref))
	}
}

// DeadLettersWaiting counts messages out of attempts in the partitions whose
// dead letters wait, as long as this replica leads.
func (m *Machine) DeadLettersWaiting(h group.Host) int {
	if m.lead == nil {
		return 0
	}
	n := 0
	for _, id := range m.state.ids() {
		st, ls := m.state.subscriptions[id], m.lead.subscriptions[id]
		if ls == nil || !ls.notedWaiting {
			continue
		}
		t := m.terms(h, id)
		for i := range st.partitions {
			if m.waits(h, st, ls.burials[model.Partition(i)]) == "" {
				continue
			}
			for _, f := range st.partitions[i].failed {
				if t.attempts > 0 && f.attempts >= t.attempts {
					n++
				}
			}
		}
	}
	return n
}
