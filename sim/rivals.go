package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// rival is one of two processes that publish under one name: each time the newer
// one opens the producer it fences the older one, which does not know and goes on.
type rival struct {
	id    model.ProducerID
	epoch model.Epoch
	next  model.Sequence
	sent  []byte // the payload at next, if its outcome is not known yet
	busy  bool
}

// startRivals runs such a pair on a topic's first partition.
func (r *run) startRivals(topic string, every time.Duration) {
	c := r.newClient("rivals." + topic)
	var newer, older rival
	sent := 0
	opening := false
	open := func() {
		opening = true
		q := &call.OpenProducerCall{Name: c.name, Fence: true, Topic: topic, Partitions: []model.Partition{0}}
		c.ask(q, 3*time.Second, func(result call.ClientResult, err *model.Error) {
			if opening = false; err == nil {
				res := result.(*call.OpenProducerCallResult)
				older, newer = newer, rival{id: res.ID, epoch: res.Epoch}
				r.probe("rival fenced")
			}
		})
	}
	publish := func(who *rival) {
		if who.id == 0 || who.busy {
			return
		}
		if who.sent == nil {
			sent++
			who.sent = fmt.Appendf(nil, "%s-%d", c.name, sent)
		}
		who.busy = true
		me := *who
		q := &call.Publish{Topic: topic, HasPartition: true, Producer: me.id, Epoch: me.epoch, Sequence: me.next,
			Messages: []batch.Message{{Payload: me.sent}}}
		c.ask(q, 2*time.Second, func(result call.ClientResult, err *model.Error) {
			if who.epoch != me.epoch {
				who = &older // it was fenced meanwhile
			}
			if who.epoch != me.epoch {
				return
			}
			who.busy = false
			if err == nil && result.(*call.PublishResult).Results[0].Err == nil {
				who.next, who.sent = me.next+1, nil
			}
		})
	}
	c.repeat(every, func() {
		switch d := c.rand.IntN(12); {
		case newer.id == 0 || d == 0:
			if !opening {
				open()
			}
		case d < 5:
			publish(&older)
		default:
			publish(&newer)
		}
	})
}

// keepsFor is within what time a quiet partition lets go of everything: twice the
// longest retention of a run, to roll and then to expire, and some seconds.
const keepsFor = 45 * time.Second

// keeps says which partition still holds messages that are older than its topic
// keeps them, although nothing is published any more. Where clocks differ nothing
// need expire: a leader whose clock is not trusted deletes nothing.
func (r *run) keeps() string {
	o := &r.w.opts
	jumps := slices.ContainsFunc(o.Strikes, func(k Strike) bool { return k.Kind == strikeJump })
	if o.Clock.MaxOffset > 100*time.Millisecond || o.Faults.Jump > 0 || jumps {
		return ""
	}
	cat, why := r.w.catalog()
	if why != "" {
		return why
	}
	for i := range o.Topics {
		t, ok := cat.Topic(o.Topics[i].Name)
		if !ok || o.Topics[i].RetentionTime == 0 {
			continue
		}
		for p, g := range t.Partitions {
			lead := r.w.leaderOf(g)
			if lead == nil {
				return fmt.Sprintf("retention: %s/%d has no leader", t.Name, p)
			}
			if m, ok := lead.host.Shard().Replica(g).Machine().(holder); ok && m.LogStart() < m.HighWatermark() {
				return fmt.Sprintf("retention: %s/%d still holds [%d, %d), published before everything was healed", t.Name, p,
					m.LogStart(), m.HighWatermark())
			}
		}
	}
	return ""
}

// holder is a partition, as far as keeps looks at it.
type holder interface {
	LogStart() model.Offset
	HighWatermark() model.Offset
}
